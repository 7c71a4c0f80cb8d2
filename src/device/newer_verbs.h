/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs that came to libibverbs after NCCL's own transport was content with it. The library of a
 * site may lack them, and a plugin that names one of its symbols is not loaded then: NCCL would
 * take its own transport without a word. So they are looked up, once, and where one is missing the
 * feature is, as where a driver does not support it.
 *
 * All of them may be called from any thread.
 */
#ifndef HA_DEVICE_NEWER_VERBS_H
#define HA_DEVICE_NEWER_VERBS_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * As ibv_reg_mr, but with optional access flags, which fail with EOPNOTSUPP if the library does not
 * pass them on. Not the macro of that name, which leads to a newer symbol. NULL and errno.
 */
struct ibv_mr *ha_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned int access);

/* As ibv_reg_dmabuf_mr. NULL and errno. */
struct ibv_mr *ha_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				    uint64_t iova, int fd, int access);

/* As ibv_query_gid_table. A negative errno. */
ssize_t ha_ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries,
			       size_t max_entries);

/* As ibv_query_ece and ibv_set_ece. An errno. */
int ha_ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int ha_ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);

/* The symbols that are missing, as "ibv_reg_dmabuf_mr, …"; "" if none is. Returns buf. */
const char *ha_missing_verbs(char *buf, size_t size);

#endif
