/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the vtables of the API versions share: the process's one instance, and the entries, each
 * named after the first version that has it in this form. The files v8.c … v12.c hold the tables
 * and what only they need.
 *
 * Lifetime. NCCL calls init once per reference-count period (v8 to v10, with no finalize) or once
 * per communicator (v11 and later, with finalize). Before v11 nothing tells us that NCCL is done,
 * so the instance then stays until the process ends; the library is linked so that dlclose leaves
 * it in place, and the next init finds it.
 */
#ifndef HA_PLUGIN_PLUGIN_H
#define HA_PLUGIN_PLUGIN_H

#include "nccl_ha/nccl_net.h"

#include <stdbool.h>

struct ha_instance;

#define HA_PLUGIN_NAME "HA"

/* Vtables are what the library exports; everything else is hidden. */
#define HA_EXPORT __attribute__((visibility("default")))

/* What every version's init does. counted: a finalize will follow. */
ncclResult_t ha_plugin_init(ncclDebugLogger_t logger, bool counted);
ncclResult_t ha_plugin_finalize(void);

/* The instance between init and finalize; NULL otherwise. */
struct ha_instance *ha_plugin_instance(void);
/*
 * Whether this is a child forked from the process whose instance it is: it may call nothing, which
 * the first call is told. For calls that are not made per message; those see their connection's
 * error.
 */
bool ha_plugin_is_foreign(const char *call);

/* NCCL's own number of its release, as 23007 of 2.30.7; 0: unknown. nccl_version.c */
int ha_plugin_nccl_version(ncclDebugLogger_t logger);

/* Whether NCCL is to fuse ports (HA_NCCL_RAILS=nccl), and so a table to offer makeVDevice. After
 * init. */
bool ha_plugin_fuses(void);

/* ---- properties.c: getProperties ------------------------------------------------------------- */

ncclResult_t ha_plugin_properties_v8(int dev, ncclNetProperties_v8_t *props);
ncclResult_t ha_plugin_properties_v9(int dev, ncclNetProperties_v9_t *props); /* and v10 */
ncclResult_t ha_plugin_properties_v11(int dev, ncclNetProperties_v11_t *props);
ncclResult_t ha_plugin_properties_v12(int dev, ncclNetProperties_v12_t *props);

/* ---- entries.c: one signature in all versions ------------------------------------------------ */

ncclResult_t ha_plugin_devices(int *ndev);
ncclResult_t ha_plugin_listen(int dev, void *handle, void **listen_comm);
ncclResult_t ha_plugin_connect(int dev, int traffic_class, void *handle, void **send_comm,
			       ncclNetDeviceHandle_v8_t **send_dev_comm);
ncclResult_t ha_plugin_accept(void *listen_comm, void **recv_comm,
			      ncclNetDeviceHandle_v8_t **recv_dev_comm);
ncclResult_t ha_plugin_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
ncclResult_t ha_plugin_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				     int fd, void **mhandle);
ncclResult_t ha_plugin_dereg_mr(void *comm, void *mhandle);
ncclResult_t ha_plugin_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
			     void **request);
ncclResult_t ha_plugin_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			     void **mhandles, void **request);
ncclResult_t ha_plugin_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles,
			      void **request);
ncclResult_t ha_plugin_test(void *request, int *done, int *sizes);
ncclResult_t ha_plugin_close_send(void *send_comm);
ncclResult_t ha_plugin_close_recv(void *recv_comm);
ncclResult_t ha_plugin_close_listen(void *listen_comm);

/* ---- entries.c: one signature in some versions ----------------------------------------------- */

/* v8 and v9: no traffic class, and no end that would be told. */
ncclResult_t ha_plugin_init_v8(ncclDebugLogger_t logger);
ncclResult_t ha_plugin_connect_v8(int dev, void *handle, void **send_comm,
				  ncclNetDeviceHandle_v8_t **send_dev_comm);

/* v10 and later: with a profiler's handles, which we do not use. */
ncclResult_t ha_plugin_isend_v10(void *send_comm, void *data, size_t size, int tag, void *mhandle,
				 void *phandle, void **request);
ncclResult_t ha_plugin_irecv_v10(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
				 void **mhandles, void **phandles, void **request);

/* ---- fuse.c: v9 and later -------------------------------------------------------------------- */

ncclResult_t ha_plugin_make_vdevice_v9(int *dev, ncclNetVDeviceProps_v9_t *props); /* to v11 */
ncclResult_t ha_plugin_make_vdevice_v12(int *dev, ncclNetVDeviceProps_v12_t *props);

/* ---- context.c: v11 and later, with a context per communicator ------------------------------- */

ncclResult_t ha_plugin_init_v11(void **context, uint64_t comm_id, ncclNetCommConfig_v11_t *config,
				ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
ncclResult_t ha_plugin_finalize_v11(void *context);
ncclResult_t ha_plugin_listen_v11(void *context, int dev, void *handle, void **listen_comm);
ncclResult_t ha_plugin_connect_v11(void *context, int dev, void *handle, void **send_comm,
				   ncclNetDeviceHandle_v11_t **send_dev_comm);
ncclResult_t ha_plugin_set_net_attr_v11(void *context, ncclNetAttr_v11_t *attr);

#endif
