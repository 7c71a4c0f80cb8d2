/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protection domains and memory registrations.
 *
 * NCCL registers a buffer once and gets one handle: struct ha_mr. Verbs register per protection
 * domain, and a connection may move to a path on another NIC: so an ha_mr remembers what was
 * registered and holds a per-NIC slot, filled for the primary at once and for another NIC the
 * first time a path on it needs the buffer. A sick device may take a minute for that, and a sound
 * one seconds where the buffer is large: so there a command thread of the NIC does it, and who
 * needs the buffer is told "not yet".
 *
 * Below it, each NIC has a page-granular, reference-counted cache shared by all connections: one
 * verbs registration serves every handle whose pages another handle on it covers. regMr and deregMr
 * may race isend and test.
 *
 * A registration ends with its last handle, and is found only for pages that a handle in use
 * covers. Keeping it for a later use of the same address would be wrong: nothing tells us that the
 * memory behind the address was unmapped and mapped anew, and the NIC would go on reading and
 * writing the old pages.
 */
#ifndef HA_MEMORY_MR_H
#define HA_MEMORY_MR_H

#include "base/list.h"
#include "base/result.h"
#include "device/device.h"

#include <infiniband/verbs.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to do where the kernel locks no more memory: registrations count, queues with some drivers.
 */
#define HA_RAISE_MEMLOCK                                                                           \
	"raise the limit on locked memory (ulimit -l unlimited; LimitMEMLOCK for services; "       \
	"--ulimit memlock=-1 for containers)"

/* The values of NCCL_PTR_HOST, _CUDA and _DMABUF. */
enum ha_mem_type { HA_MEM_HOST = 1, HA_MEM_CUDA = 2, HA_MEM_DMABUF = 4 };

/*
 * ORed to a type: writes to this memory must become visible in order, so no relaxed ordering.
 * For memory that a CPU polls while a NIC writes it.
 */
#define HA_MEM_STRICT_ORDER 0x100
/* ORed to a type: NICs may add to words of this memory. */
#define HA_MEM_ATOMIC 0x200

struct ha_mr_use;
struct ha_poller;

enum ha_mr_slot {
	HA_MR_EMPTY,
	HA_MR_QUEUED,  /* a command was sent that registers it */
	HA_MR_FILLING, /* some thread registers it */
	HA_MR_FILLED,
	HA_MR_REFUSED, /* it could not be registered, which nobody has been told yet */
};

struct ha_mr {
	/* First line: what every message looks at. */
	alignas(64) bool host; /* constant: the CPU can read it, it is no GPU's */
	/*
	 * Keys by NIC, lkey in the upper half, so that a message need not look at the registration.
	 * 0 before there is one. (Of a registration whose keys really are 0 each message asks
	 * anew.)
	 */
	_Atomic uint64_t keys[HA_MAX_NICS];

	/* Constant. */
	uintptr_t addr;
	size_t length;
	int type; /* enum ha_mem_type | HA_MEM_STRICT_ORDER | HA_MEM_ATOMIC */
	bool dmabuf;
	/*
	 * Our own copy of its descriptor, for another NIC or the same one after a reset, since NCCL
	 * closes its own at once; -1: none.
	 */
	int dmabuf_fd;
	int lent_fd; /* the caller's, for the first registration alone; else -1 */
	uint64_t dmabuf_offset, dmabuf_device, dmabuf_inode;
	struct ha_device_set *set;

	/*
	 * One slot per NIC, filled once by whoever needs it first, then constant until the NIC's
	 * device has died and is opened again (ha_mr_forget_dead). The lock makes the first be one
	 * thread and is never held over a verb; finding a filled slot takes none.
	 */
	pthread_mutex_t lock;
	pthread_cond_t filled;			      /* or refused */
	_Atomic(struct ibv_mr *) on_nic[HA_MAX_NICS]; /* stored before the keys */
	struct ha_mr_use *use[HA_MAX_NICS];	      /* what is behind on_nic; stored before it */
	uint64_t since_ns[HA_MAX_NICS];		      /* when it came to be what it is */
	uint8_t slot[HA_MAX_NICS];		      /* enum ha_mr_slot */
	uint32_t wanted;       /* by NIC: somebody waits for it, and is to be told if it fails */
	bool deregistered;     /* what is registered now nobody needs */
	struct ha_list in_set; /* under the set's mrs_lock */
	int first_nic;	       /* constant */

	/* Of whoever registered it: a list of such, and whose that is. Not looked at here. */
	struct ha_list in_owner;
	void *owner;

	/* NCCL has one, and so has each registration that is under way. */
	atomic_uint refs;
};

_Static_assert(HA_MAX_NICS <= 32, "bits of ha_mr.wanted");

/* ---- protection domains --------------------------------------------------------------------- */

/*
 * From now on memory is registered on further NICs, and deregistered, by threads of this one's
 * commands. Without it whoever needs that does it himself, and waits.
 */
static inline void ha_memory_use_commands(struct ha_device_set *set, struct ha_progress *progress)
{
	set->progress = progress;
}

/* ---- registrations -------------------------------------------------------------------------- */

/*
 * Registers [addr, addr+length) on `nic` and returns a handle the caller must give back to
 * ha_mr_deregister. type: enum ha_mem_type, with HA_MEM_STRICT_ORDER and HA_MEM_ATOMIC or without.
 * fd >= 0: the memory is a dmabuf, whatever the type (NCCL says CUDA); fd stays the caller's.
 * offset: where in the dmabuf addr lies, or, as NCCL's own transport takes it, where the page of
 * addr lies. With HA_NCCL_ENABLE_BACKUP a dmabuf takes a descriptor of ours; where none is left it
 * is registered all the same, on this NIC and no other one. Any thread.
 */
ha_result_t ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr, size_t length,
			   int type, uint64_t offset, int fd, struct ha_mr **out) HA_MUST_CHECK;

/*
 * The same where no NIC works now: the handle is registered nowhere yet, and on each NIC when it is
 * needed there (ha_mr_request). Whether the memory can be registered at all is known then; only
 * what no NIC could is refused here, such as a dmabuf that no descriptor can be kept of. nic: the
 * one that it would have been registered on.
 */
ha_result_t ha_mr_register_later(struct ha_device_set *set, struct ha_nic *nic, void *addr,
				 size_t length, int type, uint64_t offset, int fd,
				 struct ha_mr **out) HA_MUST_CHECK;

/* Registers on another NIC if it is not yet, and waits for that; slow path of ha_mr_on. Any thread
 * that may wait. */
ha_result_t ha_mr_register_on(struct ha_mr *mr, struct ha_nic *nic,
			      struct ibv_mr **out) HA_MUST_CHECK;

enum ha_mr_request {
	HA_MR_READY,   /* ha_mr_on finds it */
	HA_MR_SENT,    /* a command was sent just now */
	HA_MR_PENDING, /* one was sent before */
	HA_MR_OVERDUE, /* and that was longer ago than a healthy device takes */
	HA_MR_FAILED,  /* it failed, which its log line explains; the next request tries again */
};

/* Who waits for a registration: is called when it is through, and then let go. */
struct ha_mr_waiter {
	struct ha_poller *poller;		  /* NULL: nobody waits */
	void (*let_go)(struct ha_poller *poller); /* it may be freed */
};

/*
 * Has the memory registered on a NIC by a thread of its commands, one registration at a time for
 * each handle and NIC. Never waits. SENT: the waiter is called when it is through, successful or
 * not. Else the waiter is the caller's still: who finds PENDING asks again in time. A failure is
 * kept for those who wait only: who registers ahead of need is not told. Any thread.
 */
enum ha_mr_request ha_mr_request(struct ha_mr *mr, struct ha_nic *nic,
				 const struct ha_mr_waiter *waiter) HA_MUST_CHECK;

/*
 * Always succeeds; a verbs failure is logged. Any thread that may wait. A device that does not
 * answer within ha_command_timeout_ns is not waited for: a command thread of its own NIC ends the
 * registration in its turn, and until then the device has the pages locked and may read and write
 * them, if anything still tells it to. They are the old ones even where the address is mapped anew.
 */
void ha_mr_deregister(struct ha_mr *mr);

/*
 * Gives up what is registered on dead incarnations of a NIC, when another one is to take their
 * place: handles stay, and their memory is registered there when it is needed. Never waits for the
 * device. Before anybody posts on the new one.
 */
void ha_mr_forget_dead(struct ha_device_set *set, const struct ha_nic *nic);

/* The verbs registration for a NIC. No lock and no allocation when it exists already. May wait. */
static inline ha_result_t HA_MUST_CHECK ha_mr_on(struct ha_mr *mr, struct ha_nic *nic,
						 struct ibv_mr **out)
{
	struct ibv_mr *found = atomic_load_explicit(&mr->on_nic[nic->index], memory_order_acquire);

	if (__builtin_expect(found != NULL, 1)) {
		*out = found;
		return HA_OK;
	}
	return ha_mr_register_on(mr, nic, out);
}

/* Keys for the NIC of that index; 0: ha_mr_request has to be asked. */
static inline uint64_t ha_mr_keys(const struct ha_mr *mr, unsigned nic_index)
{
	return atomic_load_explicit(&mr->keys[nic_index], memory_order_acquire);
}

static inline uint32_t ha_mr_lkey(uint64_t keys)
{
	return (uint32_t)(keys >> 32);
}

static inline uint32_t ha_mr_rkey(uint64_t keys)
{
	return (uint32_t)keys;
}

static inline uint64_t ha_mr_pack(const struct ibv_mr *mr)
{
	return (uint64_t)mr->lkey << 32 | mr->rkey;
}

/* Whether the CPU can read it: ordinary memory, not a GPU's. */
static inline bool ha_mr_is_host(const struct ha_mr *mr)
{
	return mr->host;
}

#endif
