/* SPDX-License-Identifier: Apache-2.0 */
#include "device/island.h"

#include "base/cidr.h"
#include "base/log.h"
#include "base/text.h"
#include "device/gid.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define IPV4_BITS  24 /* where nothing is said */
#define IPV6_BITS  64
#define FILE_MAX   (1 << 20) /* bytes */
#define SHOWN_MAX  68	     /* bytes of a value that a log line repeats, at most */
#define REASON_MAX 160

struct range {
	struct ha_cidr cidr;
	char name[HA_ISLAND_NAME_MAX];
};

struct ha_islands {
	int ipv4_bits; /* where there are no ranges */
	unsigned n;
	struct range ranges[]; /* the longest first */
};

/* What is read until it is known how much it is. */
struct draft {
	struct range *ranges; /* HA_ISLANDS_MAX of them */
	unsigned n;
	int ipv4_bits;
	char why[REASON_MAX];
};

__attribute__((format(printf, 2, 3))) static bool refuse(struct draft *draft, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(draft->why, sizeof(draft->why), fmt, args);
	va_end(args);
	return false;
}

/* ---- text ----------------------------------------------------------------------------------- */

static bool add(struct draft *draft, const char *range, const char *name)
{
	char safe[SHOWN_MAX];
	struct range *r = &draft->ranges[draft->n];

	ha_printable(range, SIZE_MAX, safe, sizeof(safe));
	if (draft->n == HA_ISLANDS_MAX)
		return refuse(draft, "there are more than %d ranges", HA_ISLANDS_MAX);
	if (!ha_cidr_parse(range, &r->cidr))
		return refuse(draft, "\"%s\" is not ADDRESS/BITS", safe);
	if (*name == '\0' || strlen(name) >= sizeof(r->name))
		return refuse(draft, "%s has no name of 1 to %zu characters", safe,
			      sizeof(r->name) - 1);
	ha_copy_text(r->name, sizeof(r->name), name);
	draft->n++;
	return true;
}

/* "10.1.0.0/16=a,10.2.0.0/16=a" */
static bool parse_list(struct draft *draft, char *list)
{
	char *save = NULL;

	for (char *part = strtok_r(list, ", \t", &save); part;
	     part = strtok_r(NULL, ", \t", &save)) {
		char *name = strchr(part, '=');
		char safe[SHOWN_MAX];

		if (!name)
			return refuse(draft, "\"%s\" is neither a number of bits nor RANGE=NAME",
				      ha_printable(part, SIZE_MAX, safe, sizeof(safe)));
		*name++ = '\0';
		if (!add(draft, part, name))
			return false;
	}
	return draft->n > 0 || refuse(draft, "there is nothing in it");
}

static bool parse_bits(struct draft *draft, const char *text)
{
	char *end;
	const long bits = strtol(text, &end, 10);

	if (*end != '\0' || bits < 1 || bits > 32)
		return refuse(draft, "a number of bits is 1 to 32");
	draft->ipv4_bits = (int)bits;
	return true;
}

/* ---- a file --------------------------------------------------------------------------------- */

static bool parse_line(struct draft *draft, char *line)
{
	char *save = NULL, *range, *name;

	line[strcspn(line, "#\n")] = '\0';
	range = strtok_r(line, " \t\r", &save);
	if (!range)
		return true;
	name = strtok_r(NULL, " \t\r", &save);
	if (strtok_r(NULL, " \t\r", &save))
		return refuse(draft, "it is RANGE NAME and no more");
	return add(draft, range, name ? name : "");
}

static bool parse_lines(struct draft *draft, FILE *file)
{
	char *line = NULL, why[REASON_MAX];
	unsigned number = 0;
	size_t size = 0;
	bool ok = true;

	while (ok && getline(&line, &size, file) >= 0) {
		number++;
		ok = parse_line(draft, line);
	}
	free(line);
	if (!ok) {
		ha_copy_text(why, sizeof(why), draft->why);
		return refuse(draft, "line %u: %.130s", number, why);
	}
	return draft->n > 0 || refuse(draft, "there is nothing in it");
}

/* NULL with a reason. Who opens a pipe or a device would wait. */
static FILE *open_file(struct draft *draft, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	FILE *file;

	if (fd < 0 || fstat(fd, &st) != 0) {
		(void)refuse(draft, "the file cannot be read: %s", strerror(errno));
	} else if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
		(void)refuse(draft, "it is not a file of at most %d bytes", FILE_MAX);
	} else if ((file = fdopen(fd, "r")) != NULL) {
		return file;
	} else {
		(void)refuse(draft, "the file cannot be read: %s", strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

static bool parse_file(struct draft *draft, const char *path)
{
	FILE *file = open_file(draft, path);
	bool ok;

	if (!file)
		return false;
	ok = parse_lines(draft, file);
	fclose(file);
	return ok;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The longest first. */
static int compare(const void *a, const void *b)
{
	return ((const struct range *)b)->cidr.prefix_len -
	       ((const struct range *)a)->cidr.prefix_len;
}

static struct ha_islands *finish(const struct draft *draft)
{
	struct ha_islands *islands = malloc(sizeof(*islands) + draft->n * sizeof(*islands->ranges));

	if (!islands)
		return NULL;
	islands->ipv4_bits = draft->ipv4_bits;
	islands->n = draft->n;
	if (draft->n > 0)
		memcpy(islands->ranges, draft->ranges, draft->n * sizeof(*draft->ranges));
	qsort(islands->ranges, draft->n, sizeof(*islands->ranges), compare);
	return islands;
}

static bool parse(struct draft *draft, char *text)
{
	if (*text == '\0')
		return true;
	if (*text == '@')
		return parse_file(draft, text + 1);
	if (strspn(text, "0123456789") == strlen(text))
		return parse_bits(draft, text);
	return parse_list(draft, text);
}

struct ha_islands *ha_islands_load(const char *text)
{
	struct draft draft = {.ipv4_bits = IPV4_BITS};
	struct ha_islands *islands = NULL;
	char *copy = strdup(text), safe[SHOWN_MAX];

	draft.ranges = calloc(HA_ISLANDS_MAX, sizeof(*draft.ranges));
	if (copy && draft.ranges) {
		if (!parse(&draft, copy)) {
			HA_WARN("HA_NCCL_ISLAND=%s cannot be used: %s; islands are those whose "
				"addresses have %d bits in common (IPv6: %d)",
				ha_printable(text, SIZE_MAX, safe, sizeof(safe)), draft.why,
				IPV4_BITS, IPV6_BITS);
			draft.n = 0;
			draft.ipv4_bits = IPV4_BITS;
		}
		islands = finish(&draft);
	}
	if (!islands)
		HA_WARN("out of memory for HA_NCCL_ISLAND");
	free(draft.ranges);
	free(copy);
	return islands;
}

void ha_islands_free(struct ha_islands *islands)
{
	free(islands);
}

/* ---- two addresses --------------------------------------------------------------------------- */

/* NULL: no range has it. */
static const char *name_of(const struct ha_islands *islands, const union ibv_gid *gid)
{
	for (unsigned i = 0; i < islands->n; i++)
		if (ha_gid_in_range(gid, &islands->ranges[i].cidr))
			return islands->ranges[i].name;
	return NULL;
}

static bool alike(const union ibv_gid *a, const union ibv_gid *b, int ipv4_bits)
{
	struct ha_cidr range = {.family = AF_INET6, .prefix_len = IPV6_BITS};

	memcpy(range.addr, a->raw, sizeof(range.addr));
	if (ha_gid_is_ipv4(a)) {
		range.family = AF_INET;
		range.prefix_len = ipv4_bits;
		memcpy(range.addr, a->raw + 12, 4);
	}
	return ha_gid_in_range(b, &range);
}

bool ha_islands_same(const struct ha_islands *islands, const union ibv_gid *a,
		     const union ibv_gid *b)
{
	const char *island_a = name_of(islands, a), *island_b = name_of(islands, b);

	if (island_a || island_b)
		return island_a && island_b && strcmp(island_a, island_b) == 0;
	return alike(a, b, islands->n > 0 ? 32 : islands->ipv4_bits);
}
