/* SPDX-License-Identifier: Apache-2.0 */
/* Which NCCL has loaded us. Neither a table's version nor its calls say: a newer NCCL takes an
 * older table. */
#include "plugin/plugin.h"

#include <dlfcn.h>

typedef ncclResult_t get_version(int *version);

/* Of the library that has the logger, for a process may have two; of the program where NCCL is a
 * part of that. */
static get_version *find(ncclDebugLogger_t logger)
{
	void *address, *handle = NULL, *found;
	get_version *function;
	Dl_info info;

	*(ncclDebugLogger_t *)(void *)&address = logger;
	if (dladdr(address, &info) && info.dli_fname)
		handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	found = dlsym(handle ? handle : RTLD_DEFAULT, "ncclGetVersion");
	if (handle)
		dlclose(handle); /* it is loaded all the same */
	*(void **)(void *)&function = found;
	return function;
}

int ha_plugin_nccl_version(ncclDebugLogger_t logger)
{
	get_version *function = find(logger);
	int version = 0;

	return function && function(&version) == ncclSuccess ? version : 0;
}
