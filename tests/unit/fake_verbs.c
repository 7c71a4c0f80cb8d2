/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_verbs.h. */
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fake_device fake_devices[FAKE_MAX_DEVICES];
int fake_ndevices;
char fake_sysfs[64];

static struct fake_device *of(struct ibv_context *ctx)
{
	return (struct fake_device *)((char *)ctx - offsetof(struct fake_device, ctx));
}

/* ---- the tree ------------------------------------------------------------------------------- */

static void make_folders(char *path)
{
	for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
}

void fake_sysfs_write(const char *text, const char *path, ...)
{
	char relative[512], full[1024];
	va_list args;
	FILE *file;

	va_start(args, path);
	vsnprintf(relative, sizeof relative, path, args);
	va_end(args);
	snprintf(full, sizeof full, "%s/%s", fake_sysfs, relative);
	make_folders(full);
	file = fopen(full, "w");
	if (!file)
		abort();
	fprintf(file, "%s\n", text);
	fclose(file);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void fake_verbs_done(void)
{
	for (int i = 0; i < fake_ndevices; i++)
		if (fake_devices[i].ctx.async_fd > 0)
			close(fake_devices[i].ctx.async_fd);
	if (fake_sysfs[0])
		nftw(fake_sysfs, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	memset(fake_devices, 0, sizeof fake_devices);
	fake_ndevices = 0;
	fake_sysfs[0] = '\0';
}

void fake_verbs_reset(void)
{
	fake_verbs_done();
	snprintf(fake_sysfs, sizeof fake_sysfs, "/tmp/nccl-ha-unit-XXXXXX");
	if (!mkdtemp(fake_sysfs))
		abort();
	fake_sysfs_write("", "class/infiniband/.keep");
}

void fake_gid_set(struct fake_port *port, int index, const char *address, int roce_version)
{
	if (inet_pton(AF_INET6, address, port->gids[index].gid.raw) != 1)
		abort();
	port->gids[index].roce_version = roce_version;
}

struct fake_device *fake_device_add(const char *name)
{
	struct fake_device *device = &fake_devices[fake_ndevices++];
	int number = fake_ndevices;
	char address[64], pci[128], target[512], link[512];

	snprintf(device->device.name, sizeof device->device.name, "%s", name);
	snprintf(device->device.ibdev_path, sizeof device->device.ibdev_path,
		 "%s/class/infiniband/%.40s", fake_sysfs, name);
	device->device.transport_type = IBV_TRANSPORT_IB;
	device->ctx.device = &device->device;
	device->ctx.async_fd = -1;
	device->attr.phys_port_cnt = 1;
	device->attr.sys_image_guid = htobe64(0x1000u + (unsigned int)number);
	device->attr.max_qp = 131072;
	device->attr.max_cq = 65536;
	device->attr.max_cqe = 4194303;
	device->attr.max_mr = 1 << 20;
	device->dmabuf_errno = EBADF;
	for (int p = 1; p <= 2; p++) {
		struct fake_port *port = &device->ports[p];

		port->attr.state = IBV_PORT_ACTIVE;
		port->attr.link_layer = IBV_LINK_LAYER_ETHERNET;
		port->attr.active_mtu = IBV_MTU_4096;
		port->attr.active_speed = 128; /* NDR */
		port->attr.active_width = 2;   /* 4 lanes */
		port->attr.gid_tbl_len = FAKE_MAX_GIDS;
		port->attr.pkey_tbl_len = 4;
		port->pkeys[0] = 0xffff;
		snprintf(address, sizeof address, "::ffff:10.0.%d.%d", p - 1, number);
		fake_gid_set(port, 0, "fe80::1", 1);
		fake_gid_set(port, 1, "fe80::1", 2);
		fake_gid_set(port, 2, address, 1);
		fake_gid_set(port, 3, address, 2);
	}
	snprintf(pci, sizeof pci, "devices/pci0000:%02x/0000:%02x:00.0", number * 16, number * 16);
	fake_sysfs_write("0", "%s/numa_node", pci);
	fake_sysfs_write("4: ACTIVE", "%s/infiniband/%s/ports/1/state", pci, name);
	snprintf(target, sizeof target, "../../%s/infiniband/%s", pci, name);
	snprintf(link, sizeof link, "%s/class/infiniband/%.40s", fake_sysfs, name);
	if (symlink(target, link) != 0)
		abort();
	snprintf(link, sizeof link, "%s/%s/infiniband/%s/device", fake_sysfs, pci, name);
	if (symlink("../..", link) != 0)
		abort();
	return device;
}

void fake_event(struct fake_device *device, enum ibv_event_type type, int port_num)
{
	struct ibv_async_event *event = &device->events[device->nevents++];

	event->event_type = type;
	event->element.port_num = port_num;
}

/* ---- devices -------------------------------------------------------------------------------- */

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc((size_t)fake_ndevices + 1, sizeof(struct ibv_device *));

	for (int i = 0; i < fake_ndevices; i++)
		list[i] = &fake_devices[i].device;
	*n = fake_ndevices;
	return list;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return ((struct fake_device *)((char *)device - offsetof(struct fake_device, device)))
	    ->attr.node_guid;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_fork_init(void)
{
	return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fake_device *fake =
	    (struct fake_device *)((char *)device - offsetof(struct fake_device, device));

	if (fake->open_errno || fake->open_refusals > 0) {
		errno = fake->open_refusals-- > 0 ? ENOMEM : fake->open_errno;
		return NULL;
	}
	fake->opens++;
	fake->ctx.async_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return &fake->ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	close(ctx->async_fd);
	ctx->async_fd = -1;
	of(ctx)->closes++;
	return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	*attr = of(ctx)->attr;
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *ctx, uint8_t port_num, struct _compat_ibv_port_attr *attr)
{
	struct fake_port *port = &of(ctx)->ports[port_num];

	if (port->queried)
		port->queried();
	if (port->query_error)
		return port->query_error;
	memcpy(attr, &port->attr, offsetof(struct ibv_port_attr, port_cap_flags2));
	return 0;
}

static bool present(const struct fake_gid *gid)
{
	static const union ibv_gid none;

	return memcmp(&gid->gid, &none, sizeof none) != 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t entry_size)
{
	static const uint32_t types[] = {IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1,
					 IBV_GID_TYPE_ROCE_V2};
	struct fake_device *device = of(ctx);
	size_t n = 0;

	(void)flags;
	if (device->no_gid_table_call || entry_size != sizeof *entries)
		return -EOPNOTSUPP;
	/* Ports and entries in no order that anyone may rely on. */
	for (int p = device->attr.phys_port_cnt; p >= 1; p--) {
		for (int i = FAKE_MAX_GIDS - 1; i >= 0; i--) {
			const struct fake_gid *gid = &device->ports[p].gids[i];

			if (!present(gid) || n == max)
				continue;
			entries[n].gid = gid->gid;
			entries[n].gid_index = (uint32_t)i;
			entries[n].port_num = (uint32_t)p;
			entries[n].gid_type = types[gid->roce_version];
			n++;
		}
	}
	return (ssize_t)n;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port_num, int index, union ibv_gid *gid)
{
	*gid = of(ctx)->ports[port_num].gids[index].gid;
	return 0;
}

int ibv_query_pkey(struct ibv_context *ctx, uint8_t port_num, int index, __be16 *pkey)
{
	*pkey = htobe16(of(ctx)->ports[port_num].pkeys[index]);
	return 0;
}

/* ---- events --------------------------------------------------------------------------------- */

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	struct fake_device *device = of(ctx);

	if (device->events_broken || device->next_event == device->nevents) {
		errno = device->events_broken ? EIO : EAGAIN;
		return -1;
	}
	*event = device->events[device->next_event++];
	device->unacked++;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	for (int i = 0; i < fake_ndevices; i++)
		fake_devices[i].unacked = 0;
}

/* ---- memory --------------------------------------------------------------------------------- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);

	pd->context = ctx;
	of(ctx)->pds++;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	of(pd->context)->pds--;
	free(pd);
	return 0;
}

/* Registrations may come from several threads, as with a real device. */
static pthread_mutex_t reg_lock = PTHREAD_MUTEX_INITIALIZER;

/* With reg_lock. */
static struct ibv_mr *new_mr(struct ibv_pd *pd, void *addr, size_t length)
{
	struct ibv_mr *mr = calloc(1, sizeof *mr);

	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = mr->rkey = (uint32_t)++of(pd->context)->regs;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct fake_device *device = of(pd->context);
	struct ibv_mr *mr;

	(void)iova;
	if (device->reg_errno ||
	    (device->refuses_relaxed && (access & IBV_ACCESS_RELAXED_ORDERING))) {
		errno = device->reg_errno ? device->reg_errno : EINVAL;
		return NULL;
	}
	pthread_mutex_lock(&reg_lock);
	device->last_access = access;
	device->last_addr = (uintptr_t)addr;
	device->last_length = length;
	mr = new_mr(pd, addr, length);
	pthread_mutex_unlock(&reg_lock);
	return mr;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	struct fake_device *device = of(pd->context);
	struct ibv_mr *mr;

	if (fd < 0 || fcntl(fd, F_GETFD) < 0) {
		errno = device->dmabuf_errno;
		return NULL;
	}
	pthread_mutex_lock(&reg_lock);
	device->last_access = (unsigned int)access;
	device->last_addr = (uintptr_t)iova;
	device->last_length = length;
	device->last_offset = offset;
	device->last_fd = fd;
	mr = new_mr(pd, (void *)(uintptr_t)iova, length);
	pthread_mutex_unlock(&reg_lock);
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (of(mr->context)->dereg_error)
		return of(mr->context)->dereg_error;
	pthread_mutex_lock(&reg_lock);
	of(mr->context)->deregs++;
	pthread_mutex_unlock(&reg_lock);
	free(mr);
	return 0;
}
