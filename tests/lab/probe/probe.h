/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What verbs do: a program that asks a pair of devices some hundred questions and prints one line
 * an answer, "name = answer". It knows nothing of what is below the verbs, so the answers of two
 * implementations can be compared line by line (probe_answers.py does). What breaks links is its
 * driver: the probe prints "! what" and goes on when a line came on its standard input.
 *
 * The second device may be another process's, on another host (far.c): whoever asks has the first
 * one, and the same program serves the other.
 *
 * Answers are normalised: errors by name, completions by status, never a number that two correct
 * implementations may choose. One thread.
 */
#ifndef TESTS_LAB_PROBE_H
#define TESTS_LAB_PROBE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- answers (answer.c) -------------------------------------------------------------------- */

void answer(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
unsigned answers_given(void);

/* The question cannot be asked: a line on stderr, and the end. exit() is in sight of the caller for
 * static analysis. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define give_up(...) (complain(__VA_ARGS__), exit(3))
#define NEED(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			give_up("%s:%d: not true: %s", __FILE__, __LINE__, #condition);            \
	} while (0)

/* Tells the driver what to break or mend and waits until it is. */
void ask_driver(const char *what);

/* Text that grows by words; what does not fit is cut off. */
struct words {
	char text[512];
	size_t used;
};
/* Adds a word, after a space unless it is the first. "none" when there is none. */
void add_word(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *words_text(const struct words *words);

const char *errno_name(int error); /* "0" for 0 */
const char *status_name(enum ibv_wc_status status);
const char *event_name(enum ibv_event_type type);
const char *state_name(enum ibv_qp_state state);
const char *wc_opcode_name(enum ibv_wc_opcode opcode);
const char *port_state_name(enum ibv_port_state state);
static inline const char *yes_no(bool yes)
{
	return yes ? "yes" : "no";
}

double now_ms(void);
void sleep_ms(unsigned ms);

/* ---- devices and what is made on them (end.c) ---------------------------------------------- */

struct port {
	const char *name;
	struct far *far; /* where it is; NULL: in this process */
	/* In this process only. */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	/* As last read, wherever it is. */
	struct ibv_port_attr attr;
	union ibv_gid gid;
	uint8_t gid_index;
};

/* name: of a device, or "ADDRESS:PORT" of who serves one. */
void port_open(struct port *port, const char *name);
void port_close(struct port *port);
/* Reads state and address anew: the GID may have moved to another index. */
void port_refresh(struct port *port);
/* The first index of its GID table without an entry; the table's length if there is none. */
uint32_t port_empty_gid(const struct port *port);

#define BUF_BYTES 65536u

/* One queue pair with what belongs to it. */
struct end {
	struct port *port;
	uint32_t slot; /* of an end on another host: which one it is there */
	/* In this process only. */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	/* Wherever it is. */
	uint32_t qpn, lkey, rkey;
	uint64_t addr; /* of its memory there */
	uint8_t *buf;  /* the memory, or a copy of it: see end_get_memory() */
	uint32_t psn;
};

/* Of an end on another host, buf is a copy: what was written into it is put there, and what came
 * there is got before it is looked at. In this process both do nothing. */
void end_put_memory(struct end *end);
void end_get_memory(struct end *end);

struct pair {
	struct end a, b;
};

struct options {
	enum ibv_qp_type type;
	uint32_t sends, recvs, sges, inline_bytes;
	int cqes;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic;
	unsigned int qp_access, mr_access;
	bool signal_all;
	enum ibv_qp_state a_state, b_state; /* how far they are brought */
};

/* A pair for traffic that must not fail on a machine that is busy. */
struct options patient(void);
/* One that gives up within some 0.1 s. */
struct options quick(void);

void pair_open(struct pair *pair, struct port *a, struct port *b, const struct options *options);
void pair_close(struct pair *pair);
void end_open(struct end *end, struct port *port, const struct options *options);
void end_close(struct end *end);
void end_destroy_qp(struct end *end);

/* Everything a transition needs, with its mask. */
struct ibv_qp_attr attr_for(const struct end *end, const struct end *peer, enum ibv_qp_state to,
			    const struct options *options, int *mask);
/* 0 or errno. */
int end_modify(struct end *end, const struct end *peer, enum ibv_qp_state to,
	       const struct options *options);
/* From RESET on, up to `state`. */
void end_bring(struct end *end, const struct end *peer, enum ibv_qp_state state,
	       const struct options *options);
int end_to(struct end *end, enum ibv_qp_state state); /* ERR, RESET, SQD: no attributes */
/* Its state, and whether it drains. */
void end_query(const struct end *end, struct ibv_qp_attr *attr);
enum ibv_qp_state end_state(const struct end *end);
/* The same, after it had time to get there. */
enum ibv_qp_state end_settled_state(struct end *end, enum ibv_qp_state expected);
struct ibv_ah_attr address_of(const struct end *from, const struct end *to);

/* The end's memory registered once more, for the port's protection domain or one of its own. An end
 * has at most one. */
struct region {
	struct end *end;
	struct ibv_pd *own_pd;
	struct ibv_mr *mr;
	uint32_t lkey, rkey;
};
void region_open(struct region *region, struct end *end, unsigned int access, bool own_pd);
int region_close(struct region *region); /* 0 or errno */

/* ---- work (work.c) ------------------------------------------------------------------------- */

#define WAIT_MS	 4000u /* for what must come */
#define QUIET_MS 120u  /* for what must not, and between those of a row that must */

/* A send work request with one SGE at the start of the buffer, signalled, towards the peer's. */
struct send {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};
struct send *make_send(struct send *send, const struct end *from, const struct end *to,
		       enum ibv_wr_opcode opcode, uint32_t length);
/* On another host: with send->sge, or without any. */
int post(struct end *end, struct send *send);
int post_write(struct end *from, const struct end *to, uint32_t length, uint64_t wr_id);
int post_write_imm(struct end *from, const struct end *to, uint32_t length, uint64_t wr_id);
int post_message(struct end *from, const struct end *to, uint32_t length, uint64_t wr_id);
int post_read(struct end *from, const struct end *to, uint32_t length, uint64_t wr_id);
/* A receive of the buffer's first bytes; 0: without any. */
int post_recv(struct end *end, uint32_t length, uint64_t wr_id);
#define RECV_PIECES 2
/* One work request of at most RECV_PIECES. */
int post_recv_wr(struct end *end, struct ibv_recv_wr *wr);

/* The next completion; false after ms. */
bool next_wc(struct end *end, struct ibv_wc *wc, unsigned ms);
/* Its status, or "nothing". */
const char *next_status(struct end *end, unsigned ms);
/* Takes completions until there are none for a while (at most max); how many. */
unsigned take_all(struct end *end, struct ibv_wc *wcs, unsigned max);
/* Asks for an event of the end's completion queue. */
int arm(struct end *end, bool solicited_only);
/* Those there within ms of the last one, all acknowledged. */
unsigned cq_events(struct end *end, unsigned ms);
/* The next event of the port, acknowledged; false after ms. */
bool next_event(struct port *port, enum ibv_event_type *type, unsigned ms);
/* Events that came, as words, within ms of the last one; the same one again at once counts as one.
 * Each is acknowledged. */
const char *events_within(struct port *port, struct words *words, unsigned ms);
void drop_events(struct port *port);
/* Whether b's buffer got a's bytes. */
void fill(struct pair *pair);
bool arrived(struct pair *pair, uint32_t length);

/* ---- an end on another host (far.c) --------------------------------------------------------- */

/* Each does what the function of the same name does, at who serves. */
struct far *far_open(const char *address);
void far_close(struct far *far);
void far_refresh(struct port *port);
void far_end_open(struct end *end, const struct options *options);
void far_end_close(struct end *end);
void far_destroy_qp(struct end *end);
int far_modify(struct end *end, const struct ibv_qp_attr *attr, int mask);
void far_query(const struct end *end, struct ibv_qp_attr *attr);
void far_put_memory(struct end *end);
void far_get_memory(struct end *end);
void far_region_open(struct region *region, unsigned int access, bool own_pd);
int far_region_close(struct region *region);
int far_post(struct end *end, const struct send *send);
int far_post_recv(struct end *end, const struct ibv_recv_wr *wr);
bool far_next_wc(struct end *end, struct ibv_wc *wc, unsigned ms);
int far_arm(struct end *end, bool solicited_only);
unsigned far_cq_events(struct end *end, unsigned ms);
bool far_next_event(struct port *port, enum ibv_event_type *type, unsigned ms);

/* Serves a device to one that asks: prints the port of this address where it listens, and returns
 * when who came has gone. */
void far_serve(struct port *port, const char *address);

/* ---- questions, a file each ---------------------------------------------------------------- */

struct probe {
	struct port a, b;
};

void ask_devices(struct probe *probe);
void ask_states(struct probe *probe);
void ask_objects(struct probe *probe);
void ask_memory(struct probe *probe);
void ask_posting(struct probe *probe);
void ask_transfers(struct probe *probe);
void ask_errors(struct probe *probe);
void ask_flushing(struct probe *probe);
void ask_notification(struct probe *probe);
void ask_datagrams(struct probe *probe);
void ask_links(struct probe *probe);

#endif
