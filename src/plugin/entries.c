/* SPDX-License-Identifier: Apache-2.0 */
/* The entries that several API versions share: NCCL's types in, ours out. */
#include "instance/instance.h"
#include "plugin/plugin.h"

#include "base/log.h"
#include "device/device.h"
#include "memory/mr.h"
#include "transport/transport.h"

/* mhandles are struct ha_mr, requests struct ha_request, comms struct ha_comm or ha_listen. */

static struct ha_instance *instance_for(const char *call)
{
	struct ha_instance *instance = ha_plugin_instance();

	if (ha_plugin_is_foreign(call))
		return NULL;
	if (!instance)
		HA_WARN("%s before init", call);
	return instance;
}

ncclResult_t ha_plugin_devices(int *ndev)
{
	struct ha_instance *instance = instance_for("devices");

	*ndev = instance ? ha_instance_devices(instance)->nbundles : 0;
	return instance ? ncclSuccess : ncclInvalidUsage;
}

ncclResult_t ha_plugin_listen(int dev, void *handle, void **listen_comm)
{
	struct ha_instance *instance = instance_for("listen");

	*listen_comm = NULL;
	if (!instance)
		return ncclInvalidUsage;
	return (ncclResult_t)ha_listen(instance, dev, handle, (struct ha_listen **)listen_comm);
}

ncclResult_t ha_plugin_connect(int dev, int traffic_class, void *handle, void **send_comm,
			       ncclNetDeviceHandle_v8_t **send_dev_comm)
{
	struct ha_instance *instance = instance_for("connect");

	*send_comm = NULL;
	if (send_dev_comm)
		*send_dev_comm = NULL;
	if (!instance)
		return ncclInvalidUsage;
	return (ncclResult_t)ha_connect(instance, dev, traffic_class, handle,
					(struct ha_comm **)send_comm);
}

ncclResult_t ha_plugin_accept(void *listen_comm, void **recv_comm,
			      ncclNetDeviceHandle_v8_t **recv_dev_comm)
{
	if (recv_dev_comm)
		*recv_dev_comm = NULL;
	*recv_comm = NULL;
	if (ha_plugin_is_foreign("accept"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_accept(listen_comm, (struct ha_comm **)recv_comm);
}

ncclResult_t ha_plugin_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
	if (ha_plugin_is_foreign("regMr"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_reg_mr(comm, data, size, type, 0, -1, (struct ha_mr **)mhandle);
}

ncclResult_t ha_plugin_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				     int fd, void **mhandle)
{
	if (ha_plugin_is_foreign("regMrDmaBuf"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_reg_mr(comm, data, size, type, offset, fd,
				       (struct ha_mr **)mhandle);
}

ncclResult_t ha_plugin_dereg_mr(void *comm, void *mhandle)
{
	if (!ha_plugin_is_foreign("deregMr")) /* its parent does */
		ha_dereg_mr(comm, mhandle);
	return ncclSuccess;
}

ncclResult_t ha_plugin_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
			     void **request)
{
	return (ncclResult_t)ha_isend(send_comm, data, size, tag, mhandle,
				      (struct ha_request **)request);
}

ncclResult_t ha_plugin_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			     void **mhandles, void **request)
{
	return (ncclResult_t)ha_irecv(recv_comm, n, data, sizes, tags,
				      (struct ha_mr *const *)mhandles,
				      (struct ha_request **)request);
}

ncclResult_t ha_plugin_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles,
			      void **request)
{
	return (ncclResult_t)ha_iflush(recv_comm, n, data, sizes, (struct ha_mr *const *)mhandles,
				       (struct ha_request **)request);
}

ncclResult_t ha_plugin_test(void *request, int *done, int *sizes)
{
	return (ncclResult_t)ha_test_request(request, done, sizes);
}

ncclResult_t ha_plugin_close_send(void *send_comm)
{
	if (!ha_plugin_is_foreign("closeSend")) /* its parent does */
		ha_close_send(send_comm);
	return ncclSuccess;
}

ncclResult_t ha_plugin_close_recv(void *recv_comm)
{
	if (!ha_plugin_is_foreign("closeRecv")) /* its parent does */
		ha_close_recv(recv_comm);
	return ncclSuccess;
}

ncclResult_t ha_plugin_close_listen(void *listen_comm)
{
	if (!ha_plugin_is_foreign("closeListen")) /* its parent does */
		ha_close_listen(listen_comm);
	return ncclSuccess;
}

/* ---- some versions -------------------------------------------------------------------------- */

ncclResult_t ha_plugin_init_v8(ncclDebugLogger_t logger)
{
	return ha_plugin_init(logger, false);
}

ncclResult_t ha_plugin_connect_v8(int dev, void *handle, void **send_comm,
				  ncclNetDeviceHandle_v8_t **send_dev_comm)
{
	return ha_plugin_connect(dev, NCCL_NET_TRAFFIC_CLASS_UNDEF, handle, send_comm,
				 send_dev_comm);
}

ncclResult_t ha_plugin_isend_v10(void *send_comm, void *data, size_t size, int tag, void *mhandle,
				 void *phandle, void **request)
{
	(void)phandle;
	return ha_plugin_isend(send_comm, data, size, tag, mhandle, request);
}

ncclResult_t ha_plugin_irecv_v10(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
				 void **mhandles, void **phandles, void **request)
{
	(void)phandles;
	return ha_plugin_irecv(recv_comm, n, data, sizes, tags, mhandles, request);
}
