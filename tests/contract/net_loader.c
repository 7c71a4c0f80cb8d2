/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which plugin would NCCL or RCCL find and take, with this environment? Their loaders as far as
 * names, tables and the first calls go, as their public source has it: NCCL's since 2.27; RCCL
 * 2.21.5's (ROCm 6.2), which takes table v8 at most; and RCCL 2.29's, which is NCCL's with another
 * name in it. Names are looked for in LD_LIBRARY_PATH. Prints the file's table and devices, status
 * 0; 1: it would go on without a plugin. No GPU, NCCL or RCCL takes part.
 */
#include "nccl_ha/nccl_net.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct loader {
	const char *name, *prefix; /* of files' names */
	int newest, oldest;	   /* tables */
	bool takes_lists;	   /* several names, of which the first that works is taken */
} loaders[] = {
    {"nccl-2.27", "libnccl-net", 10, 6, true},
    {"rccl-2.21.5", "librccl-net", 8, 5, false},
    {"rccl-2.29", "librccl-net", 12, 6, true},
};

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
		   const char *fmt, ...)
{
	va_list args;

	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

/* ---- finding it ----------------------------------------------------------------------------- */

static bool is_library_name(const char *name)
{
	size_t length = strlen(name);

	return strchr(name, '/') ||
	       (!strncmp(name, "lib", 3) && length >= 3 && !strcmp(name + length - 3, ".so"));
}

/* By the name as it is, then as part of a file's name. */
static void *open_one(const struct loader *loader, const char *name)
{
	char file[300];
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (handle || (loader->takes_lists && is_library_name(name)))
		return handle;
	snprintf(file, sizeof(file), "%s-%s.so", loader->prefix, name);
	return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

static void *table_of(const struct loader *loader, void *handle, int *version)
{
	char symbol[40];
	void *table = NULL;

	for (int v = loader->newest; !table && v >= loader->oldest; v--) {
		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
		table = dlsym(handle, symbol);
		*version = v;
	}
	return table;
}

/* ---- taking it: what is called before the first connection ---------------------------------- */

/* Fills in what is to be said of devices and pointers; of each version INIT is the first call. */
#define TAKES(net, PROPERTIES, INIT)                                                               \
	do {                                                                                       \
		PROPERTIES props;                                                                  \
                                                                                                   \
		if (strcmp((net)->name, "HA") != 0 || (INIT) != ncclSuccess ||                     \
		    (net)->devices(devices) != ncclSuccess || *devices <= 0 ||                     \
		    (net)->getProperties(0, &props) != ncclSuccess || props.netDeviceType != 0)    \
			return false;                                                              \
		*ptr_support = props.ptrSupport;                                                   \
		if (!(net)->listen || !(net)->connect || !(net)->accept || !(net)->regMr ||        \
		    !(net)->regMrDmaBuf || !(net)->deregMr || !(net)->isend || !(net)->irecv ||    \
		    !(net)->iflush || !(net)->test || !(net)->closeSend || !(net)->closeRecv ||    \
		    !(net)->closeListen)                                                           \
			return false;                                                              \
	} while (0)

static bool takes_v8(const ncclNet_v8_t *net, int *devices, int *ptr_support)
{
	TAKES(net, ncclNetProperties_v8_t, net->init(logger));
	return true;
}

static bool takes_v10(const ncclNet_v10_t *net, int *devices, int *ptr_support)
{
	TAKES(net, ncclNetProperties_v10_t, net->init(logger, NULL));
	return true;
}

static bool takes_v12(const ncclNet_v12_t *net, int *devices, int *ptr_support)
{
	ncclNetCommConfig_v12_t config = {.trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF};
	void *ctx = NULL;

	TAKES(net, ncclNetProperties_v12_t, net->init(&ctx, 1, &config, logger, NULL));
	return net->finalize(ctx) == ncclSuccess;
}

/* 0: the plugin is in use; 1: RCCL would go on without it. */
static int try_one(const struct loader *loader, const char *name)
{
	int version = 0, devices = 0, ptr_support = 0;
	void *handle = open_one(loader, name), *table;
	bool ok;

	if (!handle)
		return 1;
	table = table_of(loader, handle, &version);
	if (!table)
		return 1;
	if (version == 12)
		ok = takes_v12(table, &devices, &ptr_support);
	else if (version == 10)
		ok = takes_v10(table, &devices, &ptr_support);
	else
		ok = version == 8 && takes_v8(table, &devices, &ptr_support);
	if (ok)
		printf("%s takes v%d: %d devices, pointers 0x%x\n", loader->name, version, devices,
		       (unsigned)ptr_support);
	return !ok;
}

int main(int argc, char **argv)
{
	const char *asked = getenv("NCCL_NET_PLUGIN");
	const struct loader *loader = NULL;
	char names[600], *name, *rest = NULL;

	for (size_t i = 0; argc == 2 && i < sizeof(loaders) / sizeof(loaders[0]); i++)
		if (!strcmp(loaders[i].name, argv[1]))
			loader = &loaders[i];
	if (!loader) {
		fprintf(stderr, "usage: net_loader nccl-2.27|rccl-2.21.5|rccl-2.29\n");
		return 2;
	}
	if (asked && *asked)
		snprintf(names, sizeof(names), "%s", asked);
	else
		snprintf(names, sizeof(names), "%s.so", loader->prefix);
	if (!loader->takes_lists)
		return try_one(loader, names);
	if (!strcasecmp(names, "none"))
		return 1;
	for (name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
		if (try_one(loader, name) == 0)
			return 0;
	return 1;
}
