/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protection domains and memory regions.
 *
 * A key is salt << 24 | slot << 8 | generation. The salt differs between the ports of a fabric, so
 * that a key used on the wrong rail is refused; the generation between the regions that had the
 * same slot, and slots are reused oldest first, so that a stale key is.
 */
#include "core.h"
#include "gpu.h"
#include "posted.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_DISABLE_ERROR_REPORTING
#define VALGRIND_ENABLE_ERROR_REPORTING
#endif

#define MAX_SLOTS     65536u
#define INITIAL_SLOTS 64u

#define REMOTE_WRITES (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define KNOWN_ACCESS                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB)

struct ibv_pd *sv_alloc_pd(struct ibv_context *context)
{
	struct sv_context *ctx = sv_ctx(context);
	struct sv_port *port = ctx->port;
	struct sv_pd *pd;
	int err = sv_verb_gate(context, SV_VERB_ALLOC_PD);

	if (err) {
		errno = err;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	sv_port_lock(port);
	if (port->num_pds >= port->cfg.limits.max_pd) {
		sv_port_unlock(port);
		free(pd);
		errno = ENOMEM;
		return NULL;
	}
	port->num_pds++;
	pd->ibv.context = context;
	pd->ibv.handle = port->next_handle++;
	pd->root = pd;
	sv_list_add_tail(&ctx->pds, &pd->link);
	sv_port_unlock(port);
	return &pd->ibv;
}

struct ibv_pd *sv_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr)
{
	struct ibv_pd *pd;

	if (!attr->pd || attr->comp_mask & ~(uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
						       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)) {
		errno = EINVAL;
		return NULL;
	}
	pd = sv_alloc_pd(context);
	if (pd) {
		sv_port_lock(sv_ctx_port(context));
		sv_pd(pd)->root = sv_pd(attr->pd)->root;
		if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
			sv_pd(pd)->alloc = attr->alloc;
			sv_pd(pd)->free = attr->free;
		}
		if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
			sv_pd(pd)->pd_context = attr->pd_context;
		sv_pd(pd)->root->refs++;
		sv_port_unlock(sv_ctx_port(context));
	}
	return pd;
}

void sv_free_pd(struct sv_pd *pd)
{
	struct sv_port *port = sv_ctx_port(pd->ibv.context);

	sv_port_lock(port);
	if (pd->root != pd)
		pd->root->refs--;
	sv_list_del(&pd->link);
	port->num_pds--;
	sv_port_unlock(port);
	free(pd);
}

int sv_dealloc_pd(struct ibv_pd *ibv)
{
	struct sv_port *port = sv_ctx_port(ibv->context);
	int err = sv_release_gate(ibv->context, SV_VERB_DEALLOC_PD);
	bool busy;

	if (err)
		return sv_answer(err);
	sv_port_lock(port);
	busy = sv_pd(ibv)->refs != 0;
	sv_port_unlock(port);
	if (busy)
		return EBUSY;
	sv_free_pd(sv_pd(ibv));
	return 0;
}

/* ---------------------------------------------------------------- keys */

static uint32_t make_key(const struct sv_port *port, uint32_t slot)
{
	return (port->cfg.index + 1) << 24 | slot << 8 | port->mrs[slot].generation;
}

static void free_slot(struct sv_port *port, uint32_t slot)
{
	port->mrs[slot].mr = NULL;
	port->mrs[slot].next_free = UINT32_MAX;
	if (port->mr_free_head == UINT32_MAX)
		port->mr_free_head = slot;
	else
		port->mrs[port->mr_free_tail].next_free = slot;
	port->mr_free_tail = slot;
}

static int grow_slots(struct sv_port *port)
{
	uint32_t cap = port->mr_cap ? port->mr_cap * 2 : INITIAL_SLOTS;
	struct sv_mr_slot *slots;

	if (cap > MAX_SLOTS)
		return ENOMEM;
	slots = realloc(port->mrs, (size_t)cap * sizeof(*slots));
	if (!slots)
		return ENOMEM;
	port->mrs = slots;
	for (uint32_t i = port->mr_cap; i < cap; i++) {
		slots[i].generation = (uint8_t)(port->cfg.seed + (uint64_t)i * 37);
		free_slot(port, i);
	}
	port->mr_cap = cap;
	return 0;
}

static int insert_mr(struct sv_port *port, struct sv_mr *mr)
{
	uint32_t slot;

	if (port->num_mrs >= port->cfg.limits.max_mr)
		return ENOMEM;
	if (port->mr_free_head == UINT32_MAX && grow_slots(port))
		return ENOMEM;
	slot = port->mr_free_head;
	port->mr_free_head = port->mrs[slot].next_free;
	port->mrs[slot].mr = mr;
	port->mrs[slot].generation++;
	mr->ibv.handle = slot;
	mr->ibv.lkey = mr->ibv.rkey = make_key(port, slot);
	port->num_mrs++;
	sv_port_objects_changed(port);
	return 0;
}

void sv_mr_table_free(struct sv_port *port)
{
	free(port->mrs);
}

const struct sv_mr *sv_mr_find(const struct sv_port *port, const struct sv_pd *pd, uint32_t key,
			       uint64_t addr, uint64_t length, unsigned int access)
{
	uint32_t slot = key >> 8 & 0xffff;
	const struct sv_mr *mr;

	if (slot >= port->mr_cap)
		return NULL;
	mr = port->mrs[slot].mr;
	if (!mr || mr->ibv.lkey != key || mr->pd->root != pd->root)
		return NULL;
	if (access & ~mr->access)
		return NULL;
	if (addr < mr->iova || length > mr->length || addr - mr->iova > mr->length - length)
		return NULL;
	return mr;
}

enum sv_reach sv_mr_reach(const struct sv_qp *qp, const struct sv_mr *mr)
{
	struct sv_fault_table *faults = qp->port->faults;
	struct sv_fault_where where;

	if (!mr->of_device || !sv_fault_armed(faults, SV_POINT_MEMORY))
		return SV_REACHED;
	where = sv_qp_where(qp);
	return sv_fault_memory(faults, &where, sv_now(qp->port));
}

/* ---------------------------------------------------------------- registration */

/* Pinning fails on addresses that are not mapped; the kernel tells without touching the pages. */
static bool is_mapped(const void *addr, size_t length)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr & ~(page - 1);
	uintptr_t end = ((uintptr_t)addr + length + page - 1) & ~(page - 1);
	bool mapped;

	if (end < start)
		return false;
	/* For valgrind there is something between the program's blocks that is not to be touched.
	 */
	VALGRIND_DISABLE_ERROR_REPORTING;
	mapped = length == 0 || msync((void *)start, end - start, MS_ASYNC) == 0;
	VALGRIND_ENABLE_ERROR_REPORTING;
	return mapped;
}

/*
 * Addresses of GPU memory are mapped and yet no processor can read them: hardware without peer
 * memory refuses them, and so do we unless the fabric reaches GPUs. The kernel tries the first byte
 * and the last for us.
 */
static bool is_readable(const void *addr, size_t length)
{
	bool readable;
	int fds[2];

	if (!length || pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return true; /* out of descriptors: no reason to refuse */
	/* Not write(): a sanitizer would look at what lies between two variables of a page. And for
	 * valgrind a byte that nobody has written yet is no matter of the program's either. */
	VALGRIND_DISABLE_ERROR_REPORTING;
	readable = syscall(SYS_write, fds[1], addr, 1) == 1 &&
		   syscall(SYS_write, fds[1], (const uint8_t *)addr + length - 1, 1) == 1;
	VALGRIND_ENABLE_ERROR_REPORTING;
	close(fds[0]);
	close(fds[1]);
	return readable;
}

/*
 * Memory that a driver has mapped as a device's is readable here and refused to process_vm_readv.
 * Asked now, of the first byte and the last, it need not be found out packet by packet. A kernel
 * that refuses all of it says so in another way, and to the peer.
 */
static bool refuses_borrowing(const uint8_t *addr, size_t length)
{
	for (int i = 0; length && i < 2; i++) {
		uint8_t byte;
		struct iovec here = {&byte, 1};
		struct iovec there = {(void *)(uintptr_t)(addr + (i ? length - 1 : 0)), 1};

		/* Not by the C library: see is_readable. */
		if (syscall(SYS_process_vm_readv, getpid(), &here, 1ul, &there, 1ul, 0ul) < 0 &&
		    errno == EFAULT)
			return true;
	}
	return false;
}

/* Gives back what a region holds beside its key. */
static void give_up(struct sv_mr *mr)
{
	sv_mr_unpin(mr);
	sv_mr_unlock(mr);
	sv_gpu_release(mr->gpu);
	if (mr->fd >= 0)
		close(mr->fd);
	free(mr);
}

static struct sv_mr *new_mr(void)
{
	struct sv_mr *mr = calloc(1, sizeof(*mr));

	if (mr)
		mr->fd = -1;
	return mr;
}

/* Where peer memory is to be had: the region is of a GPU's. False: it is none. */
static bool claim_gpu(const struct sv_port *port, struct sv_mr *mr, const void *addr, size_t length)
{
	if (port->cfg.gpu && length)
		mr->gpu = sv_gpu_claim(addr, length);
	mr->of_device |= mr->gpu != NULL;
	return mr->gpu;
}

/* Memory of the process, as the fabric's options want it kept. 0, or an errno. */
static int take_memory(const struct sv_port *port, struct sv_mr *mr, void *addr, size_t length)
{
	mr->base = addr;
	mr->length = length;
	if (!is_mapped(addr, length) || !is_readable(addr, length))
		return claim_gpu(port, mr, addr, length) ? 0 : EFAULT;
	if (port->cfg.memlock && !sv_mr_lock(mr))
		return ENOMEM;
	if (port->cfg.pin)
		sv_mr_pin(mr);
	return 0;
}

static struct ibv_mr *register_mr(struct ibv_pd *ibv_pd, void *addr, size_t length, uint64_t iova,
				  unsigned int access, struct sv_mr *mr)
{
	struct sv_context *ctx = sv_ctx(ibv_pd->context);
	int err;

	access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE; /* only hints */
	mr->ibv.context = ibv_pd->context;
	mr->ibv.pd = ibv_pd;
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	mr->pd = sv_pd(ibv_pd);
	mr->base = addr;
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->length = length;
	mr->access = access;
	mr->unborrowable = refuses_borrowing(mr->base, length);
	sv_port_lock(ctx->port);
	err = insert_mr(ctx->port, mr);
	if (!err) {
		mr->pd->refs++;
		sv_list_add_tail(&ctx->mrs, &mr->link);
	}
	sv_port_unlock(ctx->port);
	if (err) {
		errno = err;
		return NULL;
	}
	return &mr->ibv;
}

static int check_access(unsigned int access)
{
	/* What there is, but not here: programs go on without it. */
	if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND))
		return EOPNOTSUPP;
	if (access & ~(unsigned int)(KNOWN_ACCESS | IBV_ACCESS_OPTIONAL_RANGE))
		return EINVAL;
	/* Letting others write without being allowed to oneself is refused by every device. */
	if (access & REMOTE_WRITES && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return 0;
}

struct ibv_mr *sv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       unsigned int access)
{
	const struct sv_limits *limits = &sv_ctx_port(pd->context)->cfg.limits;
	struct ibv_mr *ibv;
	struct sv_mr *mr;
	int err = sv_verb_gate(pd->context, SV_VERB_REG_MR);

	if (!err)
		err = check_access(access);
	if (!err && (length > limits->max_mr_size || iova + length < iova))
		err = EINVAL;
	if (err) {
		errno = err;
		return NULL;
	}
	mr = new_mr();
	if (!mr)
		return NULL;
	err = take_memory(sv_ctx_port(pd->context), mr, addr, length);
	ibv = err ? NULL : register_mr(pd, mr->base, length, iova, access, mr);
	if (!ibv) {
		err = err ? err : errno;
		give_up(mr);
		errno = err;
		return NULL;
	}
	ibv->addr = addr;
	return ibv;
}

struct ibv_mr *sv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return sv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *sv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			      int access)
{
	return sv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

/*
 * Any descriptor that can be mapped stands for the exporter's buffer (udmabuf, memfd). A GPU's
 * cannot, and is reached by its address in this process, which is what programs register it at.
 */
static int map_dmabuf(const struct sv_port *port, struct sv_mr *mr, int fd, uint64_t offset,
		      size_t length, uint64_t iova, int access)
{
	size_t lead = (size_t)(offset & ((size_t)sysconf(_SC_PAGESIZE) - 1));
	int prot = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
	void *map = mmap(NULL, length + lead, prot, MAP_SHARED, fd, (off_t)(offset - lead));
	int err = errno;

	mr->of_device = true;
	if (map != MAP_FAILED) {
		mr->map = map;
		mr->map_length = length + lead;
		mr->base = (uint8_t *)map + lead;
		return 0;
	}
	if (fcntl(fd, F_GETFD) < 0 || !claim_gpu(port, mr, (void *)(uintptr_t)iova, length))
		return err;
	mr->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* the exporter's buffer lives as long */
	mr->base = (uint8_t *)(uintptr_t)iova;
	return mr->fd < 0 ? errno : 0;
}

struct ibv_mr *sv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				int fd, int access)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const struct sv_port *port = sv_ctx_port(pd->context);
	struct ibv_mr *ibv = NULL;
	struct sv_mr *mr;
	int err = sv_verb_gate(pd->context, SV_VERB_REG_DMABUF_MR);

	/* Before the arguments: programs ask with a descriptor of -1 whether it is supported. */
	if (!err && port->cfg.no_dmabuf)
		err = EOPNOTSUPP;
	if (!err)
		err = check_access((unsigned int)access);
	/* Hardware maps pages: both addresses must lie at the same place in theirs. */
	if (!err && (length == 0 || (iova & (page - 1)) != (offset & (page - 1))))
		err = EINVAL;
	if (err) {
		errno = err;
		return NULL;
	}
	mr = new_mr();
	if (!mr)
		return NULL;
	err = map_dmabuf(port, mr, fd, offset, length, iova, access);
	if (!err)
		ibv = register_mr(pd, mr->base, length, iova, (unsigned int)access, mr);
	if (!ibv) {
		err = err ? err : errno;
		give_up(mr);
		errno = err;
		return NULL;
	}
	ibv->addr = NULL; /* as libibverbs: there is no address */
	return ibv;
}

/* Memory of a GPU's is registered anew: nobody has a use for more. */
static bool can_translate(const struct sv_mr *mr, const void *addr, size_t length)
{
	return !mr->gpu && is_mapped(addr, length) && is_readable(addr, length);
}

int sv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length,
		int access)
{
	struct sv_mr *mr = sv_container_of(ibv, struct sv_mr, ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	int err;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION && !can_translate(mr, addr, length)) ||
	    (flags & IBV_REREG_MR_CHANGE_ACCESS && check_access((unsigned int)access))) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	err = sv_verb_gate(ibv->context, SV_VERB_REREG_MR);
	if (err) {
		errno = err;
		return IBV_REREG_MR_ERR_CMD;
	}
	sv_port_lock(port);
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		mr->pd->refs--;
		mr->pd = sv_pd(pd);
		mr->pd->refs++;
		ibv->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		sv_mr_unpin(mr);
		mr->base = addr;
		mr->iova = (uintptr_t)addr;
		mr->length = length;
		if (port->cfg.pin)
			sv_mr_pin(mr);
		ibv->addr = addr;
		ibv->length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		mr->access = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	sv_port_unlock(port);
	return 0;
}

void sv_free_mr(struct sv_mr *mr)
{
	struct sv_port *port = sv_ctx_port(mr->ibv.context);

	sv_port_lock(port);
	sv_posted_push_to(port, mr);
	free_slot(port, mr->ibv.handle);
	port->num_mrs--;
	sv_port_objects_changed(port);
	mr->pd->refs--;
	sv_list_del(&mr->link);
	sv_port_unlock(port);
	give_up(mr);
}

int sv_dereg_mr(struct ibv_mr *ibv)
{
	int err = sv_release_gate(ibv->context, SV_VERB_DEREG_MR);

	if (!err)
		sv_free_mr(sv_container_of(ibv, struct sv_mr, ibv));
	return sv_answer(err);
}
