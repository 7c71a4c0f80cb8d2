/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/provider.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static ha_dv_init_obj_fn *found;

static void look(void)
{
	void *library = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
	void *symbol = library ? dlsym(library, "mlx5dv_init_obj") : NULL;

	memcpy(&found, &symbol, sizeof(found));
}

ha_dv_init_obj_fn *ha_ibgda_init_obj(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look);
	return found;
}
