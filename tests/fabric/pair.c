/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes on two hosts of a live fabric; see pair.h. */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Below the limit that ctest has for these programs. */
#define TEST_LIMIT_S 160

static char name[40];
static bool is_up;
static pid_t test_pid;

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* --- the fabric ----------------------------------------------------------------------------- */

const char *fabric_name(void)
{
	return name;
}

int fabric_tool(const char *format, ...)
{
	char words[512], line[1024];
	va_list ap;
	int rc;

	va_start(ap, format);
	vsnprintf(words, sizeof(words), format, ap);
	va_end(ap);
	snprintf(line, sizeof(line), "%s %s", SIMVERBS_TOOL, words);
	rc = system(line);
	return rc < 0 ? -1 : WEXITSTATUS(rc);
}

static void at_end(void)
{
	if (is_up && getpid() == test_pid)
		fabric_down();
}

static void at_signal(int number)
{
	fprintf(stderr, "stopped by signal %d\n", number);
	at_end();
	_exit(1);
}

void fabric_up(const char *options)
{
	static int count;

	if (!test_pid) {
		test_pid = getpid();
		atexit(at_end);
		/* Whoever stops us, the fabric goes. ctest's own limit would leave it there. */
		signal(SIGTERM, at_signal);
		signal(SIGINT, at_signal);
		signal(SIGALRM, at_signal);
		alarm(TEST_LIMIT_S);
	}
	/* Of a test that failed half way. */
	if (is_up)
		fabric_down();
	snprintf(name, sizeof(name), "test-%d-%d", (int)getpid(), count++);
	if (fabric_tool("up %s %s", name, options)) {
		fprintf(stderr, "cannot bring a fabric up\n");
		exit(1);
	}
	is_up = true;
}

void fabric_down(void)
{
	if (!is_up)
		return;
	is_up = false;
	if (fabric_tool("down %s", name))
		fprintf(stderr, "cannot bring fabric %s down\n", name);
}

json_t *fabric_status(void)
{
	char line[512];
	json_error_t error;
	json_t *doc;
	FILE *out;

	snprintf(line, sizeof(line), "%s status %s --json", SIMVERBS_TOOL, name);
	out = popen(line, "r");
	if (!out)
		return NULL;
	doc = json_loadf(out, JSON_REJECT_DUPLICATES, &error);
	pclose(out);
	return doc;
}

long long status_counter(const json_t *status, const char *counter)
{
	long long sum = 0;
	json_t *device;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) sum +=
	    json_integer_value(json_object_get(json_object_get(device, "counters"), counter));
	return sum;
}

long long status_fired(const json_t *status, unsigned index)
{
	return json_integer_value(
	    json_object_get(json_array_get(json_object_get(status, "faults"), index), "fired"));
}

long long wait_until_fired(unsigned index, double limit_s)
{
	const double until_s = now_s() + limit_s;
	long long fired;

	do {
		json_t *status = fabric_status();

		fired = status_fired(status, index);
		json_decref(status);
		usleep(1000);
	} while (!fired && now_s() < until_s);
	return fired;
}

/* --- processes ------------------------------------------------------------------------------ */

static void become_host(int host)
{
	char text[12];

	snprintf(text, sizeof(text), "%d", host);
	setenv("SIMVERBS_FABRIC", name, 1);
	setenv("SIMVERBS_HOST", text, 1);
}

void pair_start(struct pair *pair, pair_body first, pair_body second, void *arg)
{
	int between[2], test[2];
	int i;

	fflush(NULL);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, between))
		abort();
	for (i = 0; i < 2; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, test))
			abort();
		pair->to_test[i] = test[0];
		pair->pid[i] = fork();
		if (pair->pid[i] == 0) {
			close(between[!i]);
			close(test[0]);
			become_host(i);
			signal(SIGPIPE, SIG_IGN);
			signal(SIGALRM, SIG_DFL);
			signal(SIGTERM, SIG_DFL);
			alarm(120);
			/* A stopped process gets no alarm: it must not outlive a failed test. */
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			exit((i ? second : first)(between[i], test[1], arg));
		}
		close(test[1]);
	}
	close(between[0]);
	close(between[1]);
}

int pair_wait_byte(struct pair *pair, int who)
{
	struct pollfd p = {.fd = pair->to_test[who], .events = POLLIN};
	unsigned char byte;

	if (poll(&p, 1, 20000) != 1 || read(p.fd, &byte, 1) != 1)
		return -1;
	return byte;
}

void pair_send_byte(struct pair *pair, int who, char byte)
{
	if (write(pair->to_test[who], &byte, 1) != 1)
		fprintf(stderr, "process %d is gone\n", who);
}

int pair_join(struct pair *pair, int who, int seconds)
{
	double end = now_s() + seconds;
	int status;

	while (waitpid(pair->pid[who], &status, WNOHANG) == 0) {
		if (now_s() > end) {
			kill(pair->pid[who], SIGKILL);
			waitpid(pair->pid[who], &status, 0);
			close(pair->to_test[who]);
			return -1;
		}
		usleep(2000);
	}
	close(pair->to_test[who]);
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* --- queue pairs ---------------------------------------------------------------------------- */

struct hello {
	union ibv_gid gid;
	uint16_t lid;
	uint32_t qpn, psn, rkey;
	uint64_t addr;
};

static void exchange(int fd, const void *mine, void *theirs, size_t len)
{
	NEED(write(fd, mine, len) == (ssize_t)len);
	NEED(recv(fd, theirs, len, MSG_WAITALL) == (ssize_t)len);
}

void meet(int peer_fd)
{
	char mine = 'm', theirs;

	exchange(peer_fd, &mine, &theirs, 1);
}

static void connect_qp(struct end *end, int peer_fd, const struct end_options *opt)
{
	struct ibv_qp_init_attr init = {
	    .send_cq = end->cq,
	    .recv_cq = end->cq,
	    .qp_type = IBV_QPT_RC,
	    .cap = {.max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 4, .max_recv_sge = 1}};
	uint8_t port_num = opt->port ? opt->port : 1;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = port_num,
				   .pkey_index = opt->pkey_index,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						      IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC};
	struct ibv_port_attr port;
	struct hello mine = {0}, theirs;
	int gid_index;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	end->qp = ibv_create_qp(end->pd, &init);
	NEED(end->qp);
	NEED(!ibv_modify_qp(end->qp, &attr, mask));
	NEED(!ibv_query_port(end->ctx, port_num, &port));
	gid_index = port.link_layer == IBV_LINK_LAYER_ETHERNET ? 3 : opt->routed;
	NEED(!ibv_query_gid(end->ctx, port_num, gid_index, &mine.gid));
	mine.lid = port.lid;
	mine.qpn = end->qp->qp_num;
	mine.psn = end->qp->qp_num * 7 & 0xffffff;
	mine.rkey = end->mr->rkey;
	mine.addr = (uintptr_t)end->buf;
	exchange(peer_fd, &mine, &theirs, sizeof(mine));
	end->peer_addr = theirs.addr;
	end->peer_rkey = theirs.rkey;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = port.active_mtu;
	attr.dest_qp_num = theirs.qpn;
	attr.rq_psn = theirs.psn;
	attr.max_dest_rd_atomic = 16;
	attr.min_rnr_timer = 12;
	attr.ah_attr.port_num = port_num;
	attr.ah_attr.dlid = theirs.lid;
	if (opt->routed) /* the FLID: bytes 4 and 5 */
		attr.ah_attr.dlid = (uint16_t)(theirs.gid.raw[4] << 8 | theirs.gid.raw[5]);
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET || opt->routed) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = theirs.gid;
		attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
		attr.ah_attr.grh.hop_limit = 64;
	}
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	NEED(!ibv_modify_qp(end->qp, &attr, mask));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout =
	    opt->timeout ? opt->timeout : 16; /* 2 s with 7: more than a busy machine takes away */
	attr.retry_cnt = opt->retry_cnt ? opt->retry_cnt : 7;
	attr.rnr_retry = 7;
	attr.sq_psn = mine.psn;
	attr.max_rd_atomic = 16;
	mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	       IBV_QP_MAX_QP_RD_ATOMIC;
	NEED(!ibv_modify_qp(end->qp, &attr, mask));
	meet(peer_fd);
}

void end_open(struct end *end, int peer_fd, const struct end_options *opt)
{
	struct ibv_device **list;
	int n, access = opt->read_only ? 0 : -1;

	memset(end, 0, sizeof(*end));
	list = ibv_get_device_list(&n);
	NEED(list && n > opt->rail);
	end->ctx = ibv_open_device(list[opt->rail]);
	NEED(end->ctx);
	ibv_free_device_list(list);
	end->pd = ibv_alloc_pd(end->ctx);
	NEED(end->pd);
	end->cq = ibv_create_cq(end->ctx, 512, NULL, NULL, 0);
	NEED(end->cq);
	end->len = opt->len;
	end->buf = opt->buf ? opt->buf : aligned_alloc(4096, (opt->len + 4095) & ~(size_t)4095);
	NEED(end->buf);
	if (access)
		access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_ATOMIC;
	if (!opt->buf)
		memset(end->buf, 0, opt->len);
	end->mr = ibv_reg_mr(end->pd, end->buf, opt->len, (unsigned)access);
	NEED(end->mr);
	connect_qp(end, peer_fd, opt);
}

void end_reconnect(struct end *end, int peer_fd, const struct end_options *opt)
{
	struct ibv_wc wc;

	NEED(!ibv_destroy_qp(end->qp));
	while (ibv_poll_cq(end->cq, 1, &wc) > 0)
		;
	connect_qp(end, peer_fd, opt);
}

__attribute__((no_sanitize("thread"))) uint8_t end_sees(const uint8_t *at)
{
	return *(const volatile uint8_t *)at;
}

void end_close(struct end *end)
{
	NEED(!ibv_destroy_qp(end->qp));
	NEED(!ibv_dereg_mr(end->mr));
	NEED(!ibv_destroy_cq(end->cq));
	NEED(!ibv_dealloc_pd(end->pd));
	NEED(!ibv_close_device(end->ctx));
	free(end->buf);
}

static int post(struct end *end, enum ibv_wr_opcode opcode, size_t offset, uint32_t len,
		uint64_t wr_id, uint32_t imm)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)end->buf + offset, .length = len, .lkey = end->mr->lkey};
	struct ibv_send_wr wr = {
	    .wr_id = wr_id,
	    .sg_list = &sge,
	    .num_sge = 1,
	    .opcode = opcode,
	    .send_flags = IBV_SEND_SIGNALED,
	    .imm_data = htobe32(imm),
	    .wr.rdma = {.remote_addr = end->peer_addr + offset, .rkey = end->peer_rkey}};
	struct ibv_send_wr *bad;

	return ibv_post_send(end->qp, &wr, &bad);
}

int end_post_write(struct end *end, size_t offset, uint32_t len, uint64_t wr_id)
{
	return post(end, IBV_WR_RDMA_WRITE, offset, len, wr_id, 0);
}

int end_post_write_imm(struct end *end, size_t offset, uint32_t len, uint32_t imm)
{
	return post(end, IBV_WR_RDMA_WRITE_WITH_IMM, offset, len, imm, imm);
}

int end_post_read(struct end *end, size_t offset, uint32_t len)
{
	return post(end, IBV_WR_RDMA_READ, offset, len, 0, 0);
}

int end_post_send(struct end *end, size_t offset, uint32_t len)
{
	return post(end, IBV_WR_SEND, offset, len, 0, 0);
}

int end_post_recv(struct end *end, size_t offset, uint32_t len)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)end->buf + offset, .length = len, .lkey = end->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = len ? 1 : 0};
	struct ibv_recv_wr *bad;

	return ibv_post_recv(end->qp, &wr, &bad);
}

int end_wait(struct end *end, struct ibv_wc *wc, double seconds)
{
	double limit = now_s() + seconds;
	int n;

	while ((n = ibv_poll_cq(end->cq, 1, wc)) == 0)
		if (now_s() > limit)
			return -1;
	NEED(n == 1);
	return (int)wc->status;
}

int end_event(struct end *end, double seconds)
{
	struct pollfd p = {.fd = end->ctx->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	if (poll(&p, 1, (int)(seconds * 1000)) != 1)
		return -1;
	NEED(!ibv_get_async_event(end->ctx, &event));
	ibv_ack_async_event(&event);
	return (int)event.event_type;
}

uint8_t pattern(uint32_t seed, size_t i)
{
	return (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
}
