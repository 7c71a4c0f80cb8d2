/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as NCCL_IB_HCA or NCCL_SOCKET_IFNAME: parsing ends, stays within the filter, says at
 * most one thing, and ^ turns the answer round.
 *
 * Input: a name, a newline, the filter.
 */
#include "fuzz.h"

#include "base/log.h"
#include "base/name_filter.h"

#include <string.h>

static int warnings;

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("mlx5_0\nmlx5"),
    FUZZ_TEXT("mlx5_0\n^=mlx5_0:1,mlx5_1:2"),
    FUZZ_TEXT("mlx5_10\n=mlx5_1,mlx5_10:255"),
    FUZZ_TEXT("eth0\n^docker,lo,virbr"),
    FUZZ_TEXT("a\na:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,a:10,a:11,a:12,a:13,a:14,a:15,a:16,a:17"),
    FUZZ_TEXT("bnxt_re0\n bnxt_re0 ,\t,, bnxt_re1:1"),
    FUZZ_TEXT("x\n:1,x:,x:0,x:256,x:1x,x::1"),
/* As many items as a filter holds, and one more. */
#define EIGHT "a:1,b:2,c:3,d:4,e:5,f:6,g:7,h:8,"
    FUZZ_TEXT("a\n" EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT),
    FUZZ_TEXT("a\n" EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT "z"),
    {NULL, 0},
};

static void check_line(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		       const char *logged)
{
	(void)level, (void)subsys, (void)file, (void)line;
	warnings++;
	for (const char *c = logged; *c; c++)
		FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void check_filter(const struct ha_name_filter *filter)
{
	FUZZ_CHECK(filter->nitems >= 0 && filter->nitems <= HA_FILTER_MAX_ITEMS);
	for (int i = 0; i < filter->nitems; i++) {
		size_t length = strnlen(filter->items[i].name, HA_FILTER_NAME_MAX);

		FUZZ_CHECK(length > 0 && length < HA_FILTER_NAME_MAX);
		FUZZ_CHECK(filter->items[i].port == HA_FILTER_ANY_PORT ||
			   (filter->items[i].port >= 1 && filter->items[i].port <= 255));
		FUZZ_CHECK(filter->items[i].rail >= -1 && filter->items[i].rail <= INT16_MAX);
		FUZZ_CHECK(filter->items[i].plane >= -1 && filter->items[i].plane <= INT16_MAX);
	}
	FUZZ_CHECK(warnings == (filter->invalid > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ha_name_filter filter, opposite;
	char text[4096], *spec;

	ha_log_set_sink(check_line);
	if (size > sizeof text - 2)
		size = sizeof text - 2;
	text[0] = '^'; /* the filter with one more in front, if there is no name before it */
	memcpy(text + 1, data, size);
	text[size + 1] = '\0';
	spec = strchr(text + 1, '\n');
	if (spec)
		*spec++ = '\0';
	else
		spec = text + 1;

	warnings = 0;
	ha_name_filter_parse(&filter, "FUZZ", spec);
	check_filter(&filter);
	if (filter.exclude)
		return 0;
	/* The same filter the other way round; the byte before spec is ours to change. */
	spec[-1] = '^';
	warnings = 0;
	ha_name_filter_parse(&opposite, "FUZZ", spec - 1);
	check_filter(&opposite);
	if (spec != text + 1)
		spec[-1] = '\0';
	for (int port = HA_FILTER_ANY_PORT; port < 4; port++) {
		bool passes = ha_name_filter_passes(&filter, text + 1, port);
		bool kept = ha_name_filter_passes(&opposite, text + 1, port);

		/* Without any name there is no filter, either way. */
		if (filter.nitems == 0 && filter.invalid == 0)
			FUZZ_CHECK(passes && kept);
		else
			FUZZ_CHECK(passes != kept);
	}
	return 0;
}
