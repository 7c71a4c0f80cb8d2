/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads any NCCL network plugin and presents one set of calls, whatever API version is underneath.
 *
 * The types are those of version 12. What an older version cannot say is filled in as NCCL's own
 * compatibility layer does it: properties get their neutral value, sizes above INT_MAX are refused
 * on v8, the optional-completion hint of irecv is removed on v8, contexts are NULL before v11.
 * Apart from that a call passes through untouched, results and written-back arguments included, so
 * that what a caller sees is the plugin's own behaviour.
 *
 * A plugin handle is immutable after np_open: any thread may call through it. Which thread may make
 * which call at the same time is the plugin contract's matter (see nccl_net.h).
 */
#ifndef NP_NETPLUGIN_H
#define NP_NETPLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl_ha/nccl_net.h"

#define NP_API_OLDEST 8
#define NP_API_NEWEST 12
#define NP_MAX_RECVS  64 /* most buffers of one np_irecv or np_iflush */

struct np_plugin;

/* What NCCL keeps per communicator. Filled by np_init. */
struct np_ctx {
	void *ctx; /* the plugin's, v11 and later; NULL before */
	ncclNetCommConfig_v12_t config;
};

/*
 * Loads a plugin. `what` is a path (anything with a '/'), a file name, or NAME for
 * libnccl-net-NAME.so, which is looked for beside the running program and above it (the build
 * tree), then on the dynamic linker's path. `api` is 8 … 12, or 0 for the newest it exports.
 * NULL on failure, with the reason and what to do in `err`.
 */
struct np_plugin *np_open(const char *what, int api, char *err, size_t err_len);

/*
 * Unloads it, as NCCL does after the last communicator. NULL is fine.
 * Nothing of the plugin may be in use.
 */
void np_close(struct np_plugin *p);

/*
 * The same library once more, with data of its own, as if it lay in another file: two of them can
 * be initialised differently in one process.
 */
struct np_plugin *np_open_copy(const struct np_plugin *p, char *err, size_t err_len);

int np_api(const struct np_plugin *p);		 /* the version in use, 8 … 12 */
const char *np_name(const struct np_plugin *p);	 /* the vtable's name; "(null)" if it has none */
const char *np_path(const struct np_plugin *p);	 /* the file that was loaded */
unsigned np_versions(const struct np_plugin *p); /* bit v set: ncclNetPlugin_v<v> is exported */
void *np_dlhandle(const struct np_plugin *p);	 /* for dlsym of other symbols */

/*
 * "v8 v9 v12" for a mask of versions, "none" for 0. Returns buf.
 */
const char *np_versions_text(unsigned versions, char *buf, size_t len);

/* "12", "v12" or "V12" → 12; "newest" → 0; anything else → -1. */
int np_parse_api(const char *text);

/* "ncclSystemError" …; never NULL. */
const char *np_result_name(ncclResult_t result);

/* A member of a table, that is a pointer. */
struct np_member {
	const char *name;
	size_t offset;
};
/* The names of those that are NULL in this table, comma separated, into buf; returns how many. */
int np_null_members(const void *table, const struct np_member *members, size_t count, char *buf,
		    size_t len);

/*
 * The names of members that NCCL uses without looking and that are NULL, comma separated, into buf;
 * returns how many. Before init succeeds it needs a name and init: a plugin may fill in the rest
 * there.
 */
enum np_moment { NP_BEFORE_INIT, NP_AFTER_INIT };
int np_missing_members(const struct np_plugin *p, enum np_moment moment, char *buf, size_t len);

#endif
