/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and matching of device and interface lists. */
#include "base/name_filter.h"

#include "base/log.h"
#include "base/text.h"

#include <stdint.h>
#include <string.h>

#define SHOWN_MAX 44 /* bytes of a bad item that a log line repeats, at most */

/* The number after a colon, if there is one: -1 for none and for an empty one. */
static bool parse_part(const char **text, const char *end, int least, int most, int *value)
{
	const char *c = *text;

	*value = -1;
	if (c == end)
		return true;
	for (c++; c < end && *c >= '0' && *c <= '9' && *value <= most; c++)
		*value = (*value < 0 ? 0 : *value * 10) + (*c - '0');
	*text = c;
	return (c == end || *c == ':') && *value <= most && (*value < 0 || *value >= least);
}

static bool add_item(struct ha_name_filter *filter, const char *text, size_t length)
{
	const char *end = text + length, *colon = memchr(text, ':', length);
	const char *rest = colon ? colon : end;
	size_t name_length = (size_t)(rest - text);
	int port, rail, plane;

	if (name_length == 0 || name_length >= HA_FILTER_NAME_MAX ||
	    filter->nitems == HA_FILTER_MAX_ITEMS)
		return false;
	if (!parse_part(&rest, end, 1, UINT8_MAX, &port) ||
	    !parse_part(&rest, end, 0, INT16_MAX, &rail) ||
	    !parse_part(&rest, end, 0, INT16_MAX, &plane) || rest != end)
		return false;
	memcpy(filter->items[filter->nitems].name, text, name_length);
	filter->items[filter->nitems].name[name_length] = '\0';
	filter->items[filter->nitems].port = port;
	filter->items[filter->nitems].rail = rail;
	filter->items[filter->nitems].plane = plane;
	filter->nitems++;
	return true;
}

static void complain(const char *variable, const char *text, size_t length)
{
	char safe[SHOWN_MAX];

	HA_WARN(
	    "%s: \"%s\" is not NAME[:PORT[:RAIL[:PLANE]]] with a port of 1 to 255 (or there are "
	    "more than %d); it matches nothing",
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

int ha_name_filter_find(const struct ha_name_filter *filter, const char *name, int port)
{
	for (int i = 0; i < filter->nitems; i++)
		if (matches(filter, i, name, port))
			return i;
	return -1;
}

bool ha_name_filter_passes(const struct ha_name_filter *filter, const char *name, int port)
{
	if (filter->nitems == 0 && filter->invalid == 0)
		return true;
	return (ha_name_filter_find(filter, name, port) >= 0) != filter->exclude;
}
