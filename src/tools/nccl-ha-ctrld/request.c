/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/request.h"

#include "base/text.h"

#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#define UNIT_DEFAULT   65536
#define UNIT_MOST      (1 << 20)
#define WINDOW_DEFAULT 16
#define WINDOW_MOST    32

/* As it is said; texts are the document's. */
struct said {
	const char *group, *port, *label, *listen;
	int rank, ranks, unit, window, is_reproducible;
	json_t *gone;
};

#define WRONG(...) (snprintf(why, size, __VA_ARGS__), false)

static bool find(const struct nc_topology *t, const char *name, bool is_port, unsigned *vertex,
		 char *why, size_t size)
{
	char shown[NC_END_MAX];

	ha_printable(name, SIZE_MAX, shown, sizeof(shown));
	switch (nc_vertex_find(t, name, vertex)) {
	case NC_FOUND:
		return !is_port || nc_is_port(t, *vertex) ||
		       WRONG("%s is a switch, and no member", shown);
	case NC_AMBIGUOUS:
		return WRONG("the host %s has several ports: name one, as HOST/NIC", shown);
	default:
		return WRONG("the topology has no %s", shown);
	}
}

static bool read_gone(const struct nc_topology *t, const json_t *list, struct nc_ask *ask,
		      char *why, size_t size)
{
	if (list && (!json_is_array(list) || json_array_size(list) > NC_GONE_MAX))
		return WRONG("gone is a list of at most %d names", NC_GONE_MAX);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));

		if (!name)
			return WRONG("gone is a list of names");
		if (!find(t, name, false, &ask->gone[ask->n_gone], why, size))
			return false;
		ask->n_gone++;
	}
	return true;
}

bool nc_address_read(const char *text, union ha_sockaddr *at, char *why, size_t size)
{
	const struct addrinfo numbers = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
					 .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(text, ':');
	const bool in_brackets = colon && *text == '[' && colon[-1] == ']';
	char host[64];
	struct addrinfo *list = NULL;
	const size_t n = colon ? (size_t)(colon - text) - 2 * in_brackets : 0;

	memset(at, 0, sizeof(*at));
	snprintf(host, sizeof(host), "%.*s", (int)n, text + in_brackets);
	if (n == 0 || n >= sizeof(host) || getaddrinfo(host, colon + 1, &numbers, &list) != 0)
		return WRONG("listen is ADDRESS:PORT, in numbers");
	memcpy(at, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return true;
}

bool nc_is_unit(int unit_bytes, int window)
{
	return unit_bytes >= 64 && unit_bytes <= UNIT_MOST && unit_bytes % 64 == 0 && window >= 1 &&
	       window <= WINDOW_MOST;
}

static bool check(const struct said *s, char *why, size_t size)
{
	if (!nc_is_name(s->group) || (*s->label && !nc_is_name(s->label)))
		return WRONG("group and label are 1 to %d letters, digits and . _ - :",
			     NC_NAME_MAX - 1);
	if (s->ranks < 1 || s->ranks > NC_PORTS || s->rank < 0 || s->rank >= s->ranks)
		return WRONG("rank %d of %d cannot be: a group has at most %d", s->rank, s->ranks,
			     NC_PORTS);
	if (!nc_is_unit(s->unit, s->window))
		return WRONG("a unit has 64 to %d bytes, a multiple of 64, and a window 1 to %d",
			     UNIT_MOST, WINDOW_MOST);
	return true;
}

static bool take(const struct nc_topology *t, json_t *json, struct nc_ask *ask, char *why,
		 size_t size)
{
	struct said s = {.label = "", .unit = UNIT_DEFAULT, .window = WINDOW_DEFAULT};
	json_error_t error;

	if (json_unpack_ex(json, &error, 0,
			   "{s:s, s:s, s:i, s:i, s?:s, s?:i, s?:i, s?:b, s?:o, s?:s !}", "group",
			   &s.group, "port", &s.port, "rank", &s.rank, "ranks", &s.ranks, "label",
			   &s.label, "unit", &s.unit, "window", &s.window, "reproducible",
			   &s.is_reproducible, "gone", &s.gone, "listen", &s.listen) != 0)
		return WRONG("this is no request: %s", error.text);
	if (!check(&s, why, size) || !find(t, s.port, true, &ask->port, why, size))
		return false;
	ha_copy_text(ask->group, sizeof(ask->group), s.group);
	ha_copy_text(ask->label, sizeof(ask->label), s.label);
	ask->rank = (unsigned)s.rank;
	ask->ranks = (unsigned)s.ranks;
	ask->unit_bytes = (uint32_t)s.unit;
	ask->window = (uint32_t)s.window;
	ask->is_reproducible = s.is_reproducible;
	if (s.listen && !nc_address_read(s.listen, &ask->listen, why, size))
		return false;
	return read_gone(t, s.gone, ask, why, size);
}

static bool find_adding(const struct nc_topology *t, const char *name, unsigned *vertex, char *why,
			size_t size)
{
	if (!find(t, name, false, vertex, why, size))
		return false;
	return (!nc_is_port(t, *vertex) && nc_switch_at(t, *vertex)->aggregates) ||
	       WRONG("%s is no switch that adds: see the topology", nc_vertex_name(t, *vertex));
}

bool nc_service_read(const struct nc_topology *topology, const char *text, size_t length,
		     struct nc_service *service, char *why, size_t size)
{
	json_error_t error;
	json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
	const char *name, *listen;
	int is_drained = 0;
	bool good;

	if (json_unpack_ex(json, &error, 0, "{s:s, s:s, s?:b !}", "switch", &name, "listen",
			   &listen, "drained", &is_drained) != 0)
		good = WRONG("this is no service: %s", error.text);
	else
		good = find_adding(topology, name, &service->vertex, why, size) &&
		       nc_address_read(listen, &service->at, why, size);
	service->is_drained = is_drained;
	json_decref(json);
	if (!good)
		ha_make_printable(why);
	return good;
}

bool nc_change_read(const struct nc_topology *topology, const char *text, size_t length,
		    unsigned *vertex, bool *is_drained, char *why, size_t size)
{
	json_error_t error;
	json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
	const char *name;
	int is_on = 0;
	bool good;

	if (json_unpack_ex(json, &error, 0, "{s:s, s:b !}", "switch", &name, "drained", &is_on) !=
	    0)
		good = WRONG("this is no change: %s", error.text);
	else
		good = find_adding(topology, name, vertex, why, size);
	*is_drained = is_on;
	json_decref(json);
	if (!good)
		ha_make_printable(why);
	return good;
}

bool nc_request_read(const struct nc_topology *topology, const char *text, size_t length,
		     struct nc_ask *ask, char *why, size_t size)
{
	json_error_t error;
	json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
	bool good;

	memset(ask, 0, sizeof(*ask));
	good =
	    json ? take(topology, json, ask, why, size) : WRONG("this is no JSON: %s", error.text);
	json_decref(json);
	if (!good)
		ha_make_printable(why);
	return good;
}
