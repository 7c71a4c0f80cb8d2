/* SPDX-License-Identifier: Apache-2.0 */
/* Registration handles: what NCCL holds, with a registration per NIC behind it. */
#include "memory/mr.h"

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/log.h"
#include "device/give_back.h"
#include "memory/cache.h"
#include "memory/pd.h"
#include "memory/verbs_mr.h"
#include "progress/command.h"
#include "progress/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The whole pages that [addr, addr+length) touches. False when there is no such memory. */
static bool whole_pages(uintptr_t addr, size_t length, uintptr_t *first, size_t *bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), last;

	if (__builtin_add_overflow(addr, length ? length - 1 : 0, &last) ||
	    last > UINTPTR_MAX - page)
		return false;
	*first = addr & ~(page - 1);
	*bytes = (last & ~(page - 1)) + page - *first;
	return true;
}

/* Where the first page lies in the dmabuf; see ha_mr_register. False when it cannot be. */
static bool page_offset(const struct ha_mr *mr, uintptr_t first_page, uint64_t *offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), into_page = mr->addr - first_page;

	if (mr->dmabuf_offset % page == 0)
		*offset = mr->dmabuf_offset;
	else if (mr->dmabuf_offset % page == into_page)
		*offset = mr->dmabuf_offset - into_page;
	else
		return false;
	return true;
}

/* A dmabuf whose descriptor could not be kept is where it was registered first, and nowhere else.
 */
static bool has_descriptor(const struct ha_mr *mr, const struct ha_nic *nic, int *fd)
{
	*fd = mr->dmabuf_fd >= 0 ? mr->dmabuf_fd : nic->index == mr->first_nic ? mr->lent_fd : -1;
	if (!mr->dmabuf || *fd >= 0)
		return true;
	HA_INFO(
	    HA_SUBSYS_NET,
	    "%s: cannot register the dmabuf of %zu bytes at %#lx: no descriptor was left to keep "
	    "it (ulimit -n)",
	    nic->name, mr->length, (unsigned long)mr->addr);
	return false;
}

static ha_result_t describe(const struct ha_mr *mr, const struct ha_nic *nic,
			    struct ha_mr_range *range)
{
	memset(range, 0, sizeof *range);
	range->type = mr->type;
	range->device = mr->dmabuf_device;
	range->inode = mr->dmabuf_inode;
	if (!has_descriptor(mr, nic, &range->fd))
		return HA_ERR_SYSTEM;
	if (!whole_pages(mr->addr, mr->length, &range->addr, &range->length) ||
	    (range->fd >= 0 && !page_offset(mr, range->addr, &range->offset))) {
		HA_WARN("cannot register %zu bytes at %#lx (offset %#llx): no such memory",
			mr->length, (unsigned long)mr->addr, (unsigned long long)mr->dmabuf_offset);
		return HA_ERR_ARGUMENT;
	}
	return HA_OK;
}

/* ---- a slot --------------------------------------------------------------------------------- */

/* Waits for the device. */
static ha_result_t obtain(const struct ha_mr *mr, struct ha_nic *nic, struct ha_mr_use **out)
{
	struct ha_incarnation *on;
	struct ha_mr_range range;
	ha_result_t result;

	*out = NULL;
	HA_TRY(describe(mr, nic, &range));
	range.further = nic->index != mr->first_nic;
	/* The registration holds the PD: a handle may outlive the connection it came from. */
	HA_TRY(ha_nic_pd_get(nic, &on));
	result = ha_mr_cache_get(on->mr_cache, &range, out);
	if (result != HA_OK)
		ha_nic_pd_put(on);
	return result;
}

/* With mr->lock held. */
static void set_slot(struct ha_mr *mr, int nic, enum ha_mr_slot slot)
{
	mr->slot[nic] = (uint8_t)slot;
	mr->since_ns[nic] = ha_now_ns();
}

static bool is_under_way(uint8_t slot)
{
	return slot == HA_MR_QUEUED || slot == HA_MR_FILLING;
}

/* With mr->lock held: what came of it; NULL: nothing. */
static void fill_slot(struct ha_mr *mr, int nic, struct ha_mr_use *use)
{
	pthread_cond_broadcast(&mr->filled);
	if (!use) {
		set_slot(mr, nic, mr->wanted & 1u << nic ? HA_MR_REFUSED : HA_MR_EMPTY);
		return;
	}
	set_slot(mr, nic, HA_MR_FILLED);
	mr->use[nic] = use;
	/* Release: who finds the pointer finds the registration and the share filled in. Pairs with
	 * the acquire in ha_mr_on and ha_mr_deregister. */
	atomic_store_explicit(&mr->on_nic[nic], use->entry->mr, memory_order_release);
	atomic_store_explicit(&mr->keys[nic], ha_mr_pack(use->entry->mr), memory_order_release);
}

/* ---- the end of a registration --------------------------------------------------------------- */

/*
 * Keys of commands. Of registrations a few may run side by side on a NIC, which leaves threads for
 * what its paths need; those of the same pages do not, since one of them is enough.
 */
#define REGISTERING 4

static uint64_t key_of_registration(const struct ha_nic *nic, uintptr_t addr)
{
	return (uintptr_t)nic + 1 + ((addr >> 12) * 0x9e3779b97f4a7c15u >> 62) % REGISTERING;
}

static uint64_t key_of_end(const struct ha_nic *nic)
{
	return (uintptr_t)nic + 1 + REGISTERING;
}

/* Commands that nobody's state waits for. */
static struct ha_poller nobody;

static struct ha_commands *commands_of(const struct ha_mr *mr, const struct ha_nic *nic)
{
	struct ha_progress *progress = mr->set->progress;

	return progress ? ha_progress_commands(progress, (unsigned)nic->index) : NULL;
}

/* A thread of the commands. */
static void end_registration(struct ha_command *command)
{
	struct ha_mr_entry *entry = ha_container_of(command, struct ha_mr_entry, end);

	ha_give_back(entry->on, HA_OBJECT_MR, entry->mr, NULL, NULL);
}

static void registration_ended(struct ha_command *command)
{
	struct ha_mr_entry *entry = ha_container_of(command, struct ha_mr_entry, end);

	ha_nic_pd_put(entry->on);
	free(entry);
}

/* One user less. Waits for a healthy device at most, and only if told to. */
static void give_up(struct ha_mr *mr, struct ha_mr_use *use, bool wait)
{
	struct ha_incarnation *on = use->entry->on;
	struct ha_mr_entry *entry = ha_mr_cache_release(on->mr_cache, use);
	struct ha_commands *commands;

	if (!entry) {
		ha_nic_pd_put(on);
		return;
	}
	entry->end.run = end_registration;
	entry->end.abandoned = registration_ended;
	entry->end.kind = HA_COMMAND_CLEAN;
	entry->end.owner = &nobody;
	entry->end.key = key_of_end(on->nic);
	ha_list_init(&entry->end.link);
	commands = commands_of(mr, on->nic);
	if (!commands) {
		end_registration(&entry->end);
		registration_ended(&entry->end);
		return;
	}
	ha_command_send(commands, &entry->end);
	if (wait)
		(void)ha_command_wait(commands, &entry->end, ha_command_timeout_ns);
	ha_command_leave(commands, &entry->end);
}

/* ---- filling a slot, and emptying it --------------------------------------------------------- */

/* A registration that was under way when its device died, on an incarnation of the past. */
static bool is_of_the_past(const struct ha_mr_use *use)
{
	return use && use->entry->on != use->entry->on->nic->now;
}

ha_result_t ha_mr_register_on(struct ha_mr *mr, struct ha_nic *nic, struct ibv_mr **out)
{
	const int i = nic->index;
	struct ha_mr_use *use, *past = NULL;
	ha_result_t result = HA_OK;

	pthread_mutex_lock(&mr->lock);
	while (is_under_way(mr->slot[i]))
		pthread_cond_wait(&mr->filled, &mr->lock);
	if (mr->slot[i] != HA_MR_FILLED) {
		set_slot(mr, i, HA_MR_FILLING);
		mr->wanted &= ~(1u << i); /* the caller is told */
		pthread_mutex_unlock(&mr->lock);
		result = obtain(mr, nic, &use);
		pthread_mutex_lock(&mr->lock);
		if (is_of_the_past(use))
			past = use;
		fill_slot(mr, i, past ? NULL : use);
	}
	*out = atomic_load_explicit(&mr->on_nic[i], memory_order_relaxed);
	pthread_mutex_unlock(&mr->lock);
	if (!past)
		return result;
	give_up(mr, past, false);
	return HA_ERR_SYSTEM;
}

/* What is to be given up; NULL: nothing. And what the dead device refused is no word of the next
 * one. */
static struct ha_mr_use *take_dead(struct ha_mr *mr, const struct ha_nic *nic)
{
	struct ha_mr_use *use = NULL;

	pthread_mutex_lock(&mr->lock);
	if (mr->slot[nic->index] == HA_MR_REFUSED)
		set_slot(mr, nic->index, HA_MR_EMPTY);
	if (mr->slot[nic->index] == HA_MR_FILLED && is_of_the_past(mr->use[nic->index])) {
		use = mr->use[nic->index];
		mr->use[nic->index] = NULL;
		atomic_store_explicit(&mr->keys[nic->index], 0, memory_order_release);
		atomic_store_explicit(&mr->on_nic[nic->index], NULL, memory_order_release);
		set_slot(mr, nic->index, HA_MR_EMPTY);
	}
	pthread_mutex_unlock(&mr->lock);
	return use;
}

void ha_mr_forget_dead(struct ha_device_set *set, const struct ha_nic *nic)
{
	struct ha_list *pos;

	pthread_mutex_lock(&set->mrs_lock);
	ha_list_for_each (pos, &set->mrs) {
		struct ha_mr *mr = ha_container_of(pos, struct ha_mr, in_set);
		struct ha_mr_use *use = take_dead(mr, nic);

		if (use)
			give_up(mr, use, false);
	}
	pthread_mutex_unlock(&set->mrs_lock);
}

/* ---- the last of a handle -------------------------------------------------------------------- */

static void put_mr(struct ha_mr *mr)
{
	/* Whoever is last sees what all others did before they let go. */
	if (atomic_fetch_sub_explicit(&mr->refs, 1, memory_order_acq_rel) != 1)
		return;
	ha_fork_close(mr->dmabuf_fd);
	pthread_cond_destroy(&mr->filled);
	pthread_mutex_destroy(&mr->lock);
	free(mr);
}

/* ---- registering in the background ----------------------------------------------------------- */

/* A refusal is news for so long. */
#define REFUSED_NS HA_NS_PER_S

/* What a healthy device needs for a large buffer beyond what it needs for any: 4 KiB pages are
 * pinned at a few GB in a second. */
#define NS_PER_BYTE 1
/* More than this may take a healthy device too long for a command of which that is said. */
#define PROMPT_BYTES (1ull << 30)

struct registration {
	struct ha_command command;
	struct ha_mr *mr; /* held */
	struct ha_nic *nic;
	struct ha_mr_use *use; /* NULL: it failed */
	struct ha_mr_waiter waiter;
};

/* A thread of the commands. */
static void run_registration(struct ha_command *command)
{
	struct registration *reg = ha_container_of(command, struct registration, command);

	pthread_mutex_lock(&reg->mr->lock);
	set_slot(reg->mr, reg->nic->index, HA_MR_FILLING);
	pthread_mutex_unlock(&reg->mr->lock);
	(void)obtain(reg->mr, reg->nic, &reg->use); /* NULL says it */
}

/* What it came to, and when: with a clock in a test's hands the command is back only now. */
static void registration_done(struct ha_command *command)
{
	struct registration *reg = ha_container_of(command, struct registration, command);
	struct ha_progress *progress = reg->mr->set->progress;
	struct ha_mr *mr = reg->mr;
	bool late;

	pthread_mutex_lock(&mr->lock);
	late = mr->deregistered || is_of_the_past(reg->use);
	if (!mr->deregistered)
		fill_slot(mr, reg->nic->index, late ? NULL : reg->use);
	pthread_mutex_unlock(&mr->lock);
	if (late && reg->use)
		give_up(mr, reg->use, false);
	if (reg->waiter.poller) {
		ha_progress_call(progress, reg->waiter.poller);
		reg->waiter.let_go(reg->waiter.poller);
	}
	put_mr(mr);
	free(reg);
}

/* The slot is QUEUED. */
static bool send_registration(struct ha_mr *mr, struct ha_nic *nic,
			      const struct ha_mr_waiter *waiter)
{
	struct ha_commands *commands = commands_of(mr, nic);
	struct registration *reg = calloc(1, sizeof *reg);

	if (!reg)
		return false;
	atomic_fetch_add_explicit(&mr->refs, 1, memory_order_relaxed);
	reg->mr = mr;
	reg->nic = nic;
	reg->waiter = *waiter;
	reg->command.run = run_registration;
	reg->command.abandoned = registration_done;
	reg->command.kind = mr->length <= PROMPT_BYTES ? HA_COMMAND_DEVICE : HA_COMMAND_CLEAN;
	reg->command.owner = &nobody;
	reg->command.key = key_of_registration(nic, mr->addr);
	ha_list_init(&reg->command.link);
	if (commands) {
		ha_command_send(commands, &reg->command);
		ha_command_leave(commands, &reg->command);
	} else { /* no memory for a queue: better late than never */
		run_registration(&reg->command);
		registration_done(&reg->command);
	}
	return true;
}

/* One that others are before waits for as long as these get on. */
static bool is_overdue(const struct ha_mr *mr, const struct ha_nic *nic)
{
	const uint64_t limit_ns = ha_command_sick_ns + mr->length * NS_PER_BYTE;
	uint64_t since_ns = mr->since_ns[nic->index], moved_ns;

	if (mr->slot[nic->index] == HA_MR_QUEUED) {
		moved_ns = atomic_load_explicit(&nic->registered_ns, memory_order_relaxed);
		if (moved_ns > since_ns)
			since_ns = moved_ns;
	}
	return ha_now_ns() > since_ns + limit_ns;
}

/* With mr->lock held. SENT: the caller sends it. */
static enum ha_mr_request look_at_slot(struct ha_mr *mr, const struct ha_nic *nic, bool waits)
{
	const uint32_t bit = 1u << nic->index;
	const uint8_t slot = mr->slot[nic->index];
	const bool lately = ha_now_ns() - mr->since_ns[nic->index] < REFUSED_NS;

	if (slot == HA_MR_FILLED)
		return HA_MR_READY;
	if (is_under_way(slot)) {
		mr->wanted |= waits ? bit : 0;
		return is_overdue(mr, nic) ? HA_MR_OVERDUE : HA_MR_PENDING;
	}
	if (slot == HA_MR_REFUSED && waits && lately) {
		set_slot(mr, nic->index, HA_MR_EMPTY);
		return HA_MR_FAILED;
	}
	set_slot(mr, nic->index, HA_MR_QUEUED);
	mr->wanted = waits ? mr->wanted | bit : mr->wanted & ~bit;
	return HA_MR_SENT;
}

enum ha_mr_request ha_mr_request(struct ha_mr *mr, struct ha_nic *nic,
				 const struct ha_mr_waiter *waiter)
{
	enum ha_mr_request found;

	pthread_mutex_lock(&mr->lock);
	found = look_at_slot(mr, nic, waiter->poller != NULL);
	pthread_mutex_unlock(&mr->lock);
	if (found != HA_MR_SENT || send_registration(mr, nic, waiter))
		return found;
	HA_WARN("out of memory for a registration");
	pthread_mutex_lock(&mr->lock);
	mr->wanted &= ~(1u << nic->index);
	fill_slot(mr, nic->index, NULL);
	pthread_mutex_unlock(&mr->lock);
	return HA_MR_FAILED;
}

/* ---- handles --------------------------------------------------------------------------------- */

/* Once: thousands may follow. */
static void warn_not_kept(const struct ha_mr *mr, int error)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&told))
		HA_WARN(
		    "cannot keep the dmabuf of %zu bytes at %#lx: %s; a connection that uses it "
		    "does not survive the loss of its NIC: raise ulimit -n, each registered dmabuf "
		    "and each connection takes a descriptor",
		    mr->length, (unsigned long)mr->addr, strerror(error));
}

/* Another NIC may need it, or the same one after a reset, where connections survive that. */
static bool take_dmabuf(struct ha_mr *mr, int fd)
{
	struct stat file;

	if (fstat(fd, &file) != 0) {
		HA_WARN("cannot register the dmabuf of %zu bytes at %#lx: descriptor %d: %s",
			mr->length, (unsigned long)mr->addr, fd, strerror(errno));
		return false;
	}
	mr->dmabuf = true;
	mr->dmabuf_device = file.st_dev;
	mr->dmabuf_inode = file.st_ino;
	mr->lent_fd = fd;
	if (!mr->set->config->enable_backup)
		return true;
	mr->dmabuf_fd = ha_fork_closes(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	if (mr->dmabuf_fd < 0)
		warn_not_kept(mr, errno);
	return true;
}

/* A handle that is registered nowhere. */
static ha_result_t new_mr(struct ha_device_set *set, const struct ha_nic *nic, void *addr,
			  size_t length, int type, uint64_t offset, int fd, struct ha_mr **out)
{
	struct ha_mr *mr = aligned_alloc(alignof(struct ha_mr), sizeof *mr);

	*out = NULL;
	if (!mr)
		return HA_ERR_SYSTEM;
	memset(mr, 0, sizeof *mr);
	mr->host = fd < 0 && (type & ~(HA_MEM_STRICT_ORDER | HA_MEM_ATOMIC)) == HA_MEM_HOST;
	mr->addr = (uintptr_t)addr;
	mr->length = length;
	mr->type = type;
	mr->dmabuf_fd = mr->lent_fd = -1;
	mr->dmabuf_offset = offset;
	mr->set = set;
	mr->first_nic = nic->index;
	ha_list_init(&mr->in_owner);
	atomic_store_explicit(&mr->refs, 1, memory_order_relaxed);
	pthread_mutex_init(&mr->lock, NULL);
	pthread_cond_init(&mr->filled, NULL);
	pthread_mutex_lock(&set->mrs_lock);
	ha_list_push_back(&set->mrs, &mr->in_set);
	pthread_mutex_unlock(&set->mrs_lock);
	if (fd >= 0 && !take_dmabuf(mr, fd)) {
		ha_mr_deregister(mr);
		return HA_ERR_SYSTEM;
	}
	*out = mr;
	return HA_OK;
}

/* The caller's descriptor is not ours any more when the call returns. */
static ha_result_t end_call(struct ha_mr *mr, ha_result_t result, struct ha_mr **out)
{
	mr->lent_fd = -1;
	*out = result == HA_OK ? mr : NULL;
	if (result != HA_OK)
		ha_mr_deregister(mr);
	return result;
}

ha_result_t ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr, size_t length,
			   int type, uint64_t offset, int fd, struct ha_mr **out)
{
	struct ibv_mr *unused;
	struct ha_mr *mr;

	*out = NULL;
	HA_TRY(new_mr(set, nic, addr, length, type, offset, fd, &mr));
	return end_call(mr, ha_mr_register_on(mr, nic, &unused), out);
}

ha_result_t ha_mr_register_later(struct ha_device_set *set, struct ha_nic *nic, void *addr,
				 size_t length, int type, uint64_t offset, int fd,
				 struct ha_mr **out)
{
	struct ha_mr_range range;
	struct ha_mr *mr;

	*out = NULL;
	HA_TRY(new_mr(set, nic, addr, length, type, offset, fd, &mr));
	mr->lent_fd = -1;
	return end_call(mr, describe(mr, nic, &range), out);
}

void ha_mr_deregister(struct ha_mr *mr)
{
	struct ha_mr_use *uses[HA_MAX_NICS];

	if (!mr)
		return;
	pthread_mutex_lock(&mr->set->mrs_lock);
	ha_list_remove(&mr->in_set);
	pthread_mutex_unlock(&mr->set->mrs_lock);
	/* From here on no registration that is under way fills a slot. */
	pthread_mutex_lock(&mr->lock);
	mr->deregistered = true;
	for (int i = 0; i < mr->set->nnics; i++)
		uses[i] = mr->slot[i] == HA_MR_FILLED ? mr->use[i] : NULL;
	pthread_mutex_unlock(&mr->lock);
	for (int i = 0; i < mr->set->nnics; i++)
		if (uses[i])
			give_up(mr, uses[i], i == mr->first_nic);
	put_mr(mr);
}
