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

/*
 * The names of members that NCCL uses without looking and that are NULL, comma separated, into buf;
 * returns how many. Before init succeeds it needs a name and init: a plugin may fill in the rest
 * there.
 */
enum np_moment { NP_BEFORE_INIT, NP_AFTER_INIT };
int np_missing_members(const struct np_plugin *p, enum np_moment moment, char *buf, size_t len);

/* ---- the calls -------------------------------------------------------------------------- */

/* Uses np_logger; profiler NULL. `comm_id` and the traffic class matter from v11 on. */
ncclResult_t np_init(struct np_plugin *p, struct np_ctx *ctx, uint64_t comm_id, int traffic_class);
ncclResult_t np_finalize(struct np_plugin *p, struct np_ctx *ctx); /* success before v11 */
ncclResult_t np_devices(struct np_plugin *p, int *ndev);
ncclResult_t np_get_properties(struct np_plugin *p, int dev, ncclNetProperties_v12_t *props);
/* Success before v11 or where the plugin has none: it is advice. */
ncclResult_t np_set_net_attr(struct np_plugin *p, struct np_ctx *ctx, ncclNetAttr_v12_t *attr);

ncclResult_t np_listen(struct np_plugin *p, struct np_ctx *ctx, int dev, void *handle,
		       void **listen_comm);
/* dev_comm may be NULL: the plugin still gets a place to write to, as with NCCL. */
ncclResult_t np_connect(struct np_plugin *p, struct np_ctx *ctx, int dev, void *handle,
			void **send_comm, ncclNetDeviceHandle_v12_t **dev_comm);
ncclResult_t np_accept(struct np_plugin *p, void *listen_comm, void **recv_comm,
		       ncclNetDeviceHandle_v12_t **dev_comm);
ncclResult_t np_close_send(struct np_plugin *p, void *send_comm);
ncclResult_t np_close_recv(struct np_plugin *p, void *recv_comm);
ncclResult_t np_close_listen(struct np_plugin *p, void *listen_comm);

ncclResult_t np_reg_mr(struct np_plugin *p, void *comm, void *data, size_t size, int type,
		       void **mhandle);
/* ncclInvalidUsage where the plugin has none. */
ncclResult_t np_reg_mr_dmabuf(struct np_plugin *p, void *comm, void *data, size_t size, int type,
			      uint64_t offset, int fd, void **mhandle);
ncclResult_t np_dereg_mr(struct np_plugin *p, void *comm, void *mhandle);

ncclResult_t np_isend(struct np_plugin *p, void *send_comm, void *data, size_t size, int tag,
		      void *mhandle, void **request);
/* n ≤ NP_MAX_RECVS. Sizes and tags are passed as they are. */
ncclResult_t np_irecv(struct np_plugin *p, void *recv_comm, int n, void **data, size_t *sizes,
		      int *tags, void **mhandles, void **request);
ncclResult_t np_iflush(struct np_plugin *p, void *recv_comm, int n, void **data, int *sizes,
		       void **mhandles, void **request);
ncclResult_t np_test(struct np_plugin *p, void *request, int *done, int *sizes);

/* ---- the log ---------------------------------------------------------------------------- */

/*
 * The logger that plugins are given. Prints to stderr what NCCL_DEBUG (VERSION, WARN, INFO, ABORT,
 * TRACE; nothing when unset) and NCCL_DEBUG_SUBSYS (INIT,NET,ENV,ALL, ^ excludes) ask for, in
 * NCCL's form; both are read at the first line.
 */
void np_logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
	       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/*
 * Also hands every line, whatever its level, to `sink` (NULL: no more). The text has no newline.
 * Any thread; lines of plugin threads come on those threads, one at a time.
 */
void np_logger_set_sink(void (*sink)(void *arg, ncclDebugLogLevel level, unsigned long flags,
				     const char *text),
			void *arg);

/* Put in front of every printed line, e.g. "rank 1"; at most 31 characters. Before np_init. */
void np_logger_set_prefix(const char *prefix);

#endif
