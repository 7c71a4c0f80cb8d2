/* SPDX-License-Identifier: Apache-2.0 */
/* What netplugin.c (loading) and netcalls.c (calling) share. */
#ifndef NP_NETPLUGIN_IMPL_H
#define NP_NETPLUGIN_IMPL_H

#include <limits.h>

#include "tools/common/netplugin.h"

/* Written by np_open only. */
struct np_plugin {
	int api; /* which member of table is meant */
	union {
		const void *any;
		const ncclNet_v8_t *v8;
		const ncclNet_v9_t *v9;
		const ncclNet_v10_t *v10;
		const ncclNet_v11_t *v11;
		const ncclNet_v12_t *v12;
	} table;
	void *dl;
	unsigned versions;
	char path[PATH_MAX];
};

#endif
