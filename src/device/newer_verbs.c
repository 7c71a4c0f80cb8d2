/* SPDX-License-Identifier: Apache-2.0 */
#include "device/newer_verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

/* X(field, symbol, result, parameters) */
#define NEWER_VERBS(X)                                                                             \
	X(reg_mr_iova2, "ibv_reg_mr_iova2", struct ibv_mr *,                                       \
	  (struct ibv_pd *, void *, size_t, uint64_t, unsigned int))                               \
	X(reg_dmabuf_mr, "ibv_reg_dmabuf_mr", struct ibv_mr *,                                     \
	  (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))                                 \
	X(query_gid_table, "_ibv_query_gid_table", ssize_t,                                        \
	  (struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t))                \
	X(query_ece, "ibv_query_ece", int, (struct ibv_qp *, struct ibv_ece *))                    \
	X(set_ece, "ibv_set_ece", int, (struct ibv_qp *, struct ibv_ece *))

/* Written by look_up alone, then constant. NULL: the library has none. */
static struct {
#define FIELD(name, symbol, result, parameters) result(*name) parameters;
	NEWER_VERBS(FIELD)
#undef FIELD
} newer;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look_up(void)
{
	/* In the scope of whoever calls, which has the library that the other verbs are from. */
#define LOOK_UP(name, symbol, result, parameters)                                                  \
	*(void **)(void *)&newer.name = dlsym(RTLD_DEFAULT, symbol);
	NEWER_VERBS(LOOK_UP)
#undef LOOK_UP
}

static void find(void)
{
	pthread_once(&once, look_up);
}

struct ibv_mr *ha_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned int access)
{
	find();
	if (newer.reg_mr_iova2)
		return newer.reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
	if (access & IBV_ACCESS_OPTIONAL_RANGE) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return (ibv_reg_mr)(pd, addr, length, (int)access);
}

struct ibv_mr *ha_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				    uint64_t iova, int fd, int access)
{
	find();
	if (newer.reg_dmabuf_mr)
		return newer.reg_dmabuf_mr(pd, offset, length, iova, fd, access);
	errno = EOPNOTSUPP;
	return NULL;
}

ssize_t ha_ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries,
			       size_t max_entries)
{
	find();
	if (!newer.query_gid_table)
		return -EOPNOTSUPP;
	return newer.query_gid_table(ctx, entries, max_entries, 0, sizeof(*entries));
}

int ha_ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	find();
	return newer.query_ece ? newer.query_ece(qp, ece) : EOPNOTSUPP;
}

int ha_ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	find();
	return newer.set_ece ? newer.set_ece(qp, ece) : EOPNOTSUPP;
}

const char *ha_missing_verbs(char *buf, size_t size)
{
	size_t used = 0;

	find();
	buf[0] = '\0';
#define NAME(name, symbol, result, parameters)                                                     \
	if (!newer.name && used < size)                                                            \
		used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "", symbol);
	NEWER_VERBS(NAME)
#undef NAME
	return buf;
}
