/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and matching of device and interface lists. */
#include "base/name_filter.h"

#include "base/log.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 44 /* bytes of a bad item that a log line repeats, at most */

/* "" or ":7" → the port number; false for anything else after the name. */
static bool parse_port(const char *text, size_t length, int *port)
{
	int value = 0;

	*port = HA_FILTER_ANY_PORT;
	if (length == 0)
		return true;
	if (length < 2 || length > 4)
		return false;
	for (size_t i = 1; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (text[i] - '0');
	}
	*port = value;
	return value >= 1 && value <= 255;
}

static bool add_item(struct ha_name_filter *filter, const char *text, size_t length)
{
	const char *colon = memchr(text, ':', length);
	size_t name_length = colon ? (size_t)(colon - text) : length;
	int port;

	if (name_length == 0 || name_length >= HA_FILTER_NAME_MAX ||
	    filter->nitems == HA_FILTER_MAX_ITEMS ||
	    !parse_port(text + name_length, length - name_length, &port))
		return false;
	memcpy(filter->items[filter->nitems].name, text, name_length);
	filter->items[filter->nitems].name[name_length] = '\0';
	filter->items[filter->nitems].port = port;
	filter->nitems++;
	return true;
}

static void complain(const char *variable, const char *text, size_t length)
{
	char safe[SHOWN_MAX];

	HA_WARN("%s: \"%s\" is not NAME or NAME:PORT with a port of 1 to 255 (or there are more "
		"than %d); it matches nothing",
		variable, ha_printable(text, length, safe, sizeof safe), HA_FILTER_MAX_ITEMS);
}

void ha_name_filter_parse(struct ha_name_filter *filter, const char *variable, const char *spec)
{
	memset(filter, 0, sizeof *filter);
	if (*spec == '^') {
		filter->exclude = true;
		spec++;
	}
	if (*spec == '=') {
		filter->exact = true;
		spec++;
	}
	while (*spec) {
		size_t length;

		spec += strspn(spec, ", \t");
		length = strcspn(spec, ", \t");
		if (length && !add_item(filter, spec, length)) {
			if (filter->invalid++ == 0)
				complain(variable, spec, length);
		}
		spec += length;
	}
}

static bool matches(const struct ha_name_filter *filter, int i, const char *name, int port)
{
	const char *wanted = filter->items[i].name;
	int wanted_port = filter->items[i].port;

	if (filter->exact ? strcmp(name, wanted) != 0 : strncmp(name, wanted, strlen(wanted)) != 0)
		return false;
	return wanted_port == HA_FILTER_ANY_PORT || port == HA_FILTER_ANY_PORT ||
	       wanted_port == port;
}

bool ha_name_filter_passes(const struct ha_name_filter *filter, const char *name, int port)
{
	bool matched = false;

	if (filter->nitems == 0 && filter->invalid == 0)
		return true;
	for (int i = 0; i < filter->nitems && !matched; i++)
		matched = matches(filter, i, name, port);
	return matched != filter->exclude;
}
