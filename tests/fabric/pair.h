/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes on two hosts of a live fabric, for tests.
 *
 * The test program itself stays off the fabric: it brings one up with the simverbs tool, starts a
 * process per host, breaks things, and brings it down whatever happened. A process that does not
 * end in time is killed and the test fails.
 */
#ifndef TESTS_FABRIC_PAIR_H
#define TESTS_FABRIC_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* --- in the test program --- */

/* Makes a fabric with a name of its own; `options` go to simverbs up. */
void fabric_up(const char *options);
void fabric_down(void); /* again is fine */
const char *fabric_name(void);
/* Runs `simverbs WORDS` with %s replaced by the fabric's name; the exit status. */
int fabric_tool(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The output of `simverbs status --json`, parsed; NULL when it is not JSON. */
struct json_t *fabric_status(void);
/* Sum over all devices of a counter in it. */
long long status_counter(const struct json_t *status, const char *counter);
/* How often fault rule `index` fired. */
long long status_fired(const struct json_t *status, unsigned index);
/* The same as soon as it is not 0, or after the limit. Asks the fabric itself. */
long long wait_until_fired(unsigned index, double limit_s);

struct proc;
/* Starts a process on a host; it ends with body's return value. `other` is a pipe to its peer. */
struct pair {
	pid_t pid[2];
	int to_test[2]; /* what each process tells the test program */
};
typedef int (*pair_body)(int peer_fd, int test_fd, void *arg);
void pair_start(struct pair *pair, pair_body first, pair_body second, void *arg);
/* Waits until process `who` wrote a byte; returns it, -1 after ten seconds. */
int pair_wait_byte(struct pair *pair, int who);
void pair_send_byte(struct pair *pair, int who, char byte);
/* The exit status of a process; 1000 + signal when killed; -1 (and killed) after `seconds`. */
int pair_join(struct pair *pair, int who, int seconds);

/* --- in the processes --- */

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	size_t len;
	uint64_t peer_addr;
	uint32_t peer_rkey;
};

struct end_options {
	int rail;
	uint8_t port;	     /* of the device; 0: the first */
	uint16_t pkey_index; /* InfiniBand */
	bool routed;	     /* InfiniBand: by the GIDs at index 1, with a GRH */
	size_t len;
	uint8_t timeout, retry_cnt;
	void *buf;	/* instead of fresh memory */
	bool read_only; /* register without any write access */
};

/* Opens a device and connects one RC queue pair with the process at the other end of peer_fd. */
void end_open(struct end *end, int peer_fd, const struct end_options *opt);
void end_close(struct end *end);
/* A byte that a device may be writing to: no thread of this program's writes it. */
uint8_t end_sees(const uint8_t *at);
/* Makes a new queue pair in place of the old one, and connects it. */
void end_reconnect(struct end *end, int peer_fd, const struct end_options *opt);
int end_post_write(struct end *end, size_t offset, uint32_t len, uint64_t wr_id);
int end_post_write_imm(struct end *end, size_t offset, uint32_t len, uint32_t imm);
int end_post_read(struct end *end, size_t offset, uint32_t len);
int end_post_send(struct end *end, size_t offset, uint32_t len);
int end_post_recv(struct end *end, size_t offset, uint32_t len);
/* The next completion's status; -1 after `seconds`. */
int end_wait(struct end *end, struct ibv_wc *wc, double seconds);
/* The next asynchronous event; -1 when there is none within `seconds`. */
int end_event(struct end *end, double seconds);
/* Both processes come here before either goes on. */
void meet(int peer_fd);
/* Byte number i of a message made from a seed. */
uint8_t pattern(uint32_t seed, size_t i);
double now_s(void);

/* Ends the process with a line on stderr. */
#define NEED(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: process %d: not true: %s (errno %d)\n", __FILE__,  \
				__LINE__, (int)getpid(), #condition, errno);                       \
			_exit(99);                                                                 \
		}                                                                                  \
	} while (0)

#endif
