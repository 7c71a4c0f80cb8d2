/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a NIC's device, and who holds which opening of it. */
#include "device/incarnation.h"

#include "base/fork_guard.h"
#include "base/log.h"
#include "device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* ---- open, close ---------------------------------------------------------------------------- */

static bool says_why(struct ha_verb_failure *why, const char *verb, int error)
{
	*why = (struct ha_verb_failure){.verb = verb, .error = error};
	return error == 0;
}

static bool never_blocks(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* The context is open. */
static bool prepare(struct ibv_context *ctx, struct ibv_device_attr *attr,
		    struct ha_verb_failure *why)
{
	int error = ibv_query_device(ctx, attr);

	if (!says_why(why, "ibv_query_device", error))
		return false;
	return never_blocks(ctx->async_fd) ||
	       says_why(why, "fcntl (of the event descriptor)", errno);
}

ha_result_t ha_incarnation_open(struct ha_nic *nic, struct ibv_device *device,
				struct ibv_device_attr *attr, struct ha_incarnation **out,
				struct ha_verb_failure *why)
{
	struct ha_incarnation *incarnation = calloc(1, sizeof(*incarnation));

	*out = NULL;
	if (!incarnation) {
		(void)says_why(why, "calloc", ENOMEM);
		return HA_ERR_SYSTEM;
	}
	errno = 0;
	incarnation->nic = nic;
	incarnation->ctx = ibv_open_device(device);
	if (!incarnation->ctx) {
		(void)says_why(why, "ibv_open_device", errno ? errno : ENODEV);
		free(incarnation);
		return HA_ERR_SYSTEM;
	}
	if (!prepare(incarnation->ctx, attr, why)) {
		ibv_close_device(incarnation->ctx);
		free(incarnation);
		return HA_ERR_SYSTEM;
	}
	/* The kernel keeps the device's objects until the last process has let go. */
	ha_fork_closes(incarnation->ctx->async_fd);
	ha_fork_closes(incarnation->ctx->cmd_fd);
	pthread_mutex_init(&incarnation->pd_lock, NULL);
	ha_refusals_init(&incarnation->refusals);
	*out = incarnation;
	return HA_OK;
}

void ha_incarnation_close(struct ha_incarnation *incarnation)
{
	const char *name = incarnation->nic->name;

	if (incarnation->pd)
		HA_WARN("%s: its protection domain is still in use at close", name);
	ha_fork_forgets(incarnation->ctx->async_fd);
	ha_fork_forgets(incarnation->ctx->cmd_fd);
	ha_give_back_last(incarnation);
	if (ibv_close_device(incarnation->ctx) != 0)
		HA_WARN("%s: closing failed: %s", name, strerror(errno));
	ha_refusals_end(&incarnation->refusals);
	pthread_mutex_destroy(&incarnation->pd_lock);
	free(incarnation);
}

/* ---- the NIC's ------------------------------------------------------------------------------ */

void ha_nic_replace(struct ha_nic *nic, struct ha_incarnation *incarnation)
{
	pthread_mutex_lock(&nic->lock);
	incarnation->older = nic->now;
	incarnation->number = nic->now ? nic->now->number + 1 : 1;
	nic->now = incarnation;
	pthread_mutex_unlock(&nic->lock);
}

struct ha_incarnation *ha_nic_hold(struct ha_nic *nic)
{
	struct ha_incarnation *incarnation;

	pthread_mutex_lock(&nic->lock);
	incarnation = nic->now;
	incarnation->users++;
	pthread_mutex_unlock(&nic->lock);
	return incarnation;
}

void ha_incarnation_hold(struct ha_incarnation *incarnation)
{
	struct ha_nic *nic = incarnation->nic;

	pthread_mutex_lock(&nic->lock);
	incarnation->users++;
	pthread_mutex_unlock(&nic->lock);
}

void ha_incarnation_let_go(struct ha_incarnation *incarnation)
{
	struct ha_nic *nic = incarnation->nic;

	pthread_mutex_lock(&nic->lock);
	incarnation->users--;
	pthread_mutex_unlock(&nic->lock);
}

struct ha_incarnation *ha_nic_idle(struct ha_nic *nic, bool *left)
{
	struct ha_incarnation *found = NULL, *newer;

	pthread_mutex_lock(&nic->lock);
	for (newer = nic->now; newer->older; newer = newer->older)
		if (newer->older->users == 0) {
			found = newer->older;
			newer->older = found->older;
			break;
		}
	if (left)
		*left = ((struct ha_incarnation *)nic->now)->older != NULL;
	pthread_mutex_unlock(&nic->lock);
	return found;
}

bool ha_incarnation_died(struct ha_incarnation *incarnation)
{
	bool news = !ha_incarnation_is_dead(incarnation);

	if (news)
		atomic_store(&incarnation->died_ns, ha_now_ns() | 1); /* never 0 */
	atomic_store(&incarnation->nic->fatal, true);
	return news;
}

bool ha_incarnation_took_along(const struct ha_incarnation *incarnation, int error, uint64_t now_ns)
{
	uint64_t died_ns = atomic_load(&incarnation->died_ns);

	return (error == EIO || error == ENODEV) && died_ns != 0 &&
	       now_ns >= died_ns + HA_LEAVING_NS;
}
