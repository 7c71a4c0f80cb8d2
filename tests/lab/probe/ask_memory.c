/* SPDX-License-Identifier: Apache-2.0 */
/* Registering memory, and keys that are no longer good. */
#include "probe.h"

#include <errno.h>
#include <sys/mman.h>

#define LENGTH 8192u

static int try_reg(struct probe *probe, void *addr, size_t length, unsigned int access)
{
	struct ibv_mr *mr;
	int error;

	errno = 0;
	mr = ibv_reg_mr(probe->a.pd, addr, length, access);
	error = mr ? 0 : errno;
	if (mr)
		NEED(!ibv_dereg_mr(mr));
	return error;
}

static void ask_registration(struct probe *probe)
{
	unsigned int all =
	    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	uint8_t *memory =
	    mmap(NULL, 2 * LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	NEED(memory != MAP_FAILED);
	answer("mr.register", "%s", errno_name(try_reg(probe, memory, LENGTH, all)));
	answer("mr.relaxed-ordering", "%s",
	       errno_name(try_reg(probe, memory, LENGTH, all | IBV_ACCESS_RELAXED_ORDERING)));
	answer("mr.remote-write-without-local", "%s",
	       errno_name(try_reg(probe, memory, LENGTH, IBV_ACCESS_REMOTE_WRITE)));
	answer("mr.unaligned", "%s", errno_name(try_reg(probe, memory + 3, 77, all)));
	answer("mr.on-demand", "%s",
	       try_reg(probe, memory, LENGTH, all | IBV_ACCESS_ON_DEMAND) ? "refused" : "0");
	NEED(!munmap(memory + LENGTH, LENGTH));
	answer("mr.not-mapped", "%s", errno_name(try_reg(probe, memory, 2 * LENGTH, all)));
	NEED(!mprotect(memory, LENGTH, PROT_READ));
	answer("mr.read-only-memory", "%s", errno_name(try_reg(probe, memory, LENGTH, all)));
	answer("mr.read-only-memory.read-access", "%s",
	       errno_name(try_reg(probe, memory, LENGTH, IBV_ACCESS_REMOTE_READ)));
	NEED(!munmap(memory, LENGTH));
	errno = 0;
	mr = ibv_reg_dmabuf_mr(probe->a.pd, 0, LENGTH, 0, -1, (int)all);
	answer("mr.dmabuf-support", "%s", mr || errno == EBADF ? "yes" : errno_name(errno));
}

/* Registered again at once, memory has another key: a stale one does not fit by chance. */
static void ask_keys(struct probe *probe)
{
	static uint8_t memory[LENGTH];
	struct ibv_mr *mr = ibv_reg_mr(probe->a.pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE);
	uint32_t rkey;

	NEED(mr);
	rkey = mr->rkey;
	NEED(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr(probe->a.pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE);
	NEED(mr);
	answer("mr.key-comes-again-at-once", "%s", yes_no(mr->rkey == rkey));
	NEED(!ibv_dereg_mr(mr));
}

/* A region that goes away while a receive refers to it. */
static void ask_dereg(struct probe *probe)
{
	struct options options = patient();
	struct ibv_sge sge;
	struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1};
	struct region region;
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	region_open(&region, &pair.b, options.mr_access, false);
	sge = (struct ibv_sge){pair.b.addr, LENGTH, region.lkey};
	NEED(!post_recv_wr(&pair.b, &recv));
	answer("mr.dereg-in-use", "%s", errno_name(region_close(&region)));
	fill(&pair);
	NEED(!post_message(&pair.a, &pair.b, 100, 1));
	answer("mr.dereg-in-use.its-receive", "%s", next_status(&pair.b, WAIT_MS));
	answer("mr.dereg-in-use.sender", "%s", next_status(&pair.a, WAIT_MS));
	answer("mr.dereg-in-use.wrote", "%s", yes_no(arrived(&pair, 100)));
	pair_close(&pair);
}

/* A key of the peer that was good a moment ago. */
static void ask_stale_key(struct probe *probe)
{
	struct options options = patient();
	struct region region;
	struct pair pair;
	struct send send;

	pair_open(&pair, &probe->a, &probe->b, &options);
	region_open(&region, &pair.b, options.mr_access, false);
	make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 100);
	send.wr.wr.rdma.rkey = region.rkey;
	NEED(!post(&pair.a, &send));
	answer("mr.remote.good-key", "%s", next_status(&pair.a, WAIT_MS));
	NEED(!region_close(&region));
	fill(&pair);
	NEED(!post(&pair.a, &send));
	answer("mr.remote.stale-key", "%s", next_status(&pair.a, WAIT_MS));
	answer("mr.remote.stale-key.wrote", "%s", yes_no(arrived(&pair, 100)));
	pair_close(&pair);
}

/* A key of another protection domain. */
static void ask_foreign_pd(struct probe *probe)
{
	struct options options = patient();
	struct region region;
	struct pair pair;
	struct send send;

	pair_open(&pair, &probe->a, &probe->b, &options);
	region_open(&region, &pair.b, options.mr_access, true);
	make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 100);
	send.wr.wr.rdma.rkey = region.rkey;
	NEED(!post(&pair.a, &send));
	answer("mr.remote.other-pd", "%s", next_status(&pair.a, WAIT_MS));
	NEED(!region_close(&region));
	pair_close(&pair);
}

void ask_memory(struct probe *probe)
{
	ask_registration(probe);
	ask_keys(probe);
	ask_dereg(probe);
	ask_stale_key(probe);
	ask_foreign_pd(probe);
}
