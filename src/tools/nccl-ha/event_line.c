/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/event_line.h"

#include "base/text.h"
#include "event/event.h"
#include "tools/nccl-ha/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "";
}

/* ---- the filter ----------------------------------------------------------------------------- */

static const char *const kinds[] = {
#define KIND_TEXT(name, text) [HA_EVENT_##name] = (text),
    HA_EVENTS(KIND_TEXT)
#undef KIND_TEXT
};

static unsigned int kind_bit(const char *name, size_t length)
{
	for (unsigned int i = 0; i < HA_EVENT_COUNT; i++)
		if (strlen(kinds[i]) == length && !strncmp(kinds[i], name, length))
			return 1u << i;
	return 0;
}

const char *nh_event_filter_kinds(struct nh_event_filter *filter, const char *names)
{
	while (*names) {
		size_t length = strcspn(names, ",");
		unsigned int bit = kind_bit(names, length);

		if (!bit)
			return "is none of these:" HA_EVENT_NAMES;
		filter->kinds |= bit;
		names += length + (names[length] == ',');
	}
	return NULL;
}

static bool ago(struct nh_event_filter *filter, const char *text)
{
	static const char units[] = "smhd";
	static const unsigned int seconds[] = {1, 60, 3600, 86400};
	char *end, date[NH_TEXT_MAX];
	struct timespec now;
	const char *unit;
	double n, then;

	n = strtod(text, &end);
	unit = *end ? strchr(units, *end) : NULL;
	if (end == text || !unit || end[1] || !(n >= 0) || n > 1e9)
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	then = (double)now.tv_sec - n * seconds[unit - units];
	nh_date_text(then > 0 ? (uint64_t)then * 1000000000u : 0, date);
	snprintf(filter->since, sizeof(filter->since), "%s", date);
	return true;
}

const char *nh_event_filter_since(struct nh_event_filter *filter, const char *text)
{
	static const char shape[] = "dddd-dd-ddTdd:dd:dd.ddd";
	size_t length = strlen(text);

	if (length > 0 && text[length - 1] == 'Z')
		length--;
	if (ago(filter, text))
		return NULL;
	if (length < 4 || length >= sizeof(shape))
		return "is no time: 2026-11-22T06:30 (UTC), or 90s, 10m, 2h, 3d for so long ago";
	for (size_t i = 0; i < length; i++)
		if (shape[i] == 'd' ? !isdigit((unsigned char)text[i]) : shape[i] != text[i])
			return "is no time: 2026-11-22T06:30 (UTC), or 90s, 10m, 2h, 3d for so "
			       "long ago";
	snprintf(filter->since, sizeof(filter->since), "%.*s", (int)length, text);
	return NULL;
}

bool nh_event_wanted(const struct nh_event_filter *filter, const json_t *event)
{
	const char *kind = text_of(event, "kind"), *wanted = filter->connection;
	const json_t *rank = json_object_get(event, "rank");

	if (filter->kinds && !(kind_bit(kind, strlen(kind)) & filter->kinds))
		return false;
	if (wanted && strncmp(text_of(event, "connection"), wanted, strlen(wanted)) != 0 &&
	    !strstr(text_of(event, "name"), wanted))
		return false;
	if (filter->reason && !strstr(text_of(event, "reason"), filter->reason))
		return false;
	if (filter->rank >= 0 &&
	    (!json_is_integer(rank) || json_integer_value(rank) != filter->rank))
		return false;
	return strcmp(text_of(event, "time"), filter->since) >= 0;
}

/* ---- text ----------------------------------------------------------------------------------- */

static void print_text(FILE *to, int width, const char *text)
{
	char safe[400];

	fprintf(to, "%-*s", width, ha_printable(text, SIZE_MAX, safe, sizeof(safe)));
}

/* "mlx5_0:1 (path 0.2)", as log lines have it. */
static void print_path(FILE *to, const json_t *path)
{
	const json_t *index = json_object_get(path, "path");

	print_text(to, 0, *text_of(path, "port") ? text_of(path, "port") : "no path");
	if (json_is_integer(index))
		fprintf(to, " (path %lld.%lld)", (long long)json_integer_value(index),
			(long long)json_integer_value(json_object_get(path, "generation")));
}

static void print_paths(FILE *to, const json_t *event)
{
	const json_t *from = json_object_get(event, "from"), *other = json_object_get(event, "to");

	if (json_is_object(from))
		print_path(to, from);
	if (json_is_object(from) && json_is_object(other))
		fputs(" -> ", to);
	if (json_is_object(other))
		print_path(to, other);
}

static void print_ms(FILE *to, const json_t *event, const char *name, const char *what)
{
	const json_t *ms = json_object_get(event, name);
	char text[NH_TEXT_MAX];

	if (json_is_number(ms) && json_number_value(ms) >= 0 && json_number_value(ms) < 1e12)
		fprintf(to, ", %s %s", what,
			nh_time_text((uint64_t)(json_number_value(ms) * 1e6), text));
}

void nh_event_print_heads(FILE *to)
{
	fprintf(to, "%-24s  %-10s %6s %5s  %-8s  %-16s  %s\n", "time", "host", "pid", "rank",
		"kind", "connection", "what");
}

void nh_event_print(const json_t *event, FILE *to)
{
	const json_t *rank = json_object_get(event, "rank");
	const json_t *replayed = json_object_get(event, "replayed_messages");

	print_text(to, 24, text_of(event, "time"));
	fputs("  ", to);
	print_text(to, 10, text_of(event, "host"));
	fprintf(to, " %6lld ", (long long)json_integer_value(json_object_get(event, "pid")));
	if (json_is_integer(rank))
		fprintf(to, "%5lld", (long long)json_integer_value(rank));
	else
		fprintf(to, "%5s", "-");
	fputs("  ", to);
	print_text(to, 8, text_of(event, "kind"));
	fputs("  ", to);
	print_text(to, 16, *text_of(event, "connection") ? text_of(event, "connection") : "-");
	fputs("  ", to);
	print_paths(to, event);
	if (*text_of(event, "reason")) {
		fputs(": ", to);
		print_text(to, 0, text_of(event, "reason"));
	}
	if (*text_of(event, "detail")) {
		fputs(" (", to);
		print_text(to, 0, text_of(event, "detail"));
		fputs(")", to);
	}
	print_ms(to, event, "detection_ms", "detected after");
	print_ms(to, event, "blackout_ms", "blackout");
	if (json_is_integer(replayed) && json_integer_value(replayed) > 0)
		fprintf(to, ", %lld replayed", (long long)json_integer_value(replayed));
	putc('\n', to);
}
