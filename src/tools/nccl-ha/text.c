/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define S 1000000000ull

/* Three significant digits. */
static void scaled(double value, const char *unit, char buf[NH_TEXT_MAX])
{
	snprintf(buf, NH_TEXT_MAX, "%.*f %s",
		 value < 9.995	 ? 2
		 : value < 99.95 ? 1
				 : 0,
		 value, unit);
}

const char *nh_time_text(uint64_t ns, char buf[NH_TEXT_MAX])
{
	if (ns == 0)
		snprintf(buf, NH_TEXT_MAX, "-");
	else if (ns < 1000)
		snprintf(buf, NH_TEXT_MAX, "%" PRIu64 " ns", ns);
	else if (ns < 999500)
		scaled((double)ns / 1e3, "µs", buf);
	else if (ns < 999500000)
		scaled((double)ns / 1e6, "ms", buf);
	else
		scaled((double)ns / 1e9, "s", buf);
	return buf;
}

const char *nh_duration_text(uint64_t ns, char buf[NH_TEXT_MAX])
{
	uint64_t s = ns / S;

	if (s < 60)
		snprintf(buf, NH_TEXT_MAX, "%" PRIu64 " s", s);
	else if (s < 3600)
		snprintf(buf, NH_TEXT_MAX, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(buf, NH_TEXT_MAX, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(buf, NH_TEXT_MAX, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
	return buf;
}

const char *nh_speed_text(uint64_t mbps, char buf[NH_TEXT_MAX])
{
	if (mbps == 0)
		snprintf(buf, NH_TEXT_MAX, "-");
	else if (mbps % 1000)
		snprintf(buf, NH_TEXT_MAX, "%.1f Gb/s", (double)mbps / 1000);
	else
		snprintf(buf, NH_TEXT_MAX, "%" PRIu64 " Gb/s", mbps / 1000);
	return buf;
}

const char *nh_amount_text(double amount, const char *unit, char buf[NH_TEXT_MAX])
{
	static const char prefixes[] = {'\0', 'k', 'M', 'G', 'T', 'P'};
	size_t i = 0;
	char full[12];

	while (amount >= 999.5 && i + 1 < sizeof(prefixes)) {
		amount /= 1000;
		i++;
	}
	if (i == 0) {
		snprintf(buf, NH_TEXT_MAX, "%.0f%s%s", amount, *unit ? " " : "", unit);
		return buf;
	}
	snprintf(full, sizeof(full), "%c%.8s", prefixes[i], unit);
	scaled(amount, full, buf);
	return buf;
}

const char *nh_date_text(uint64_t realtime_ns, char buf[NH_TEXT_MAX])
{
	time_t s = (time_t)(realtime_ns / S);
	struct tm utc;
	size_t n = 0;

	if (gmtime_r(&s, &utc))
		n = strftime(buf, NH_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(buf + n, NH_TEXT_MAX - n, ".%03uZ", (unsigned)(realtime_ns % S / 1000000));
	return buf;
}

static void drop_bytes_beyond_ascii(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text >= 0x80)
			*text = '?';
}

json_t *nh_json_text(const char *text)
{
	json_t *string = json_string(text);
	char *copy;

	if (string)
		return string;
	copy = strdup(text);
	if (copy)
		drop_bytes_beyond_ascii(copy);
	string = json_string(copy ? copy : "");
	free(copy);
	return string;
}

void nh_json_set(json_t *object, const char *name, json_t *value)
{
	(void)json_object_set_new(object, name, value);
}

void nh_json_set_number(json_t *object, const char *name, uint64_t value)
{
	nh_json_set(object, name, json_integer((json_int_t)value));
}

void nh_json_set_text(json_t *object, const char *name, const char *text)
{
	nh_json_set(object, name, *text ? nh_json_text(text) : json_null());
}

void nh_json_set_date(json_t *object, const char *name, uint64_t realtime_ns)
{
	char date[NH_TEXT_MAX];

	nh_json_set_text(object, name, realtime_ns ? nh_date_text(realtime_ns, date) : "");
}
