/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank and the root of the bootstrap star say to each other, and how it gets there.
 *
 *	rank: hello			who it is, and a random number
 *	root: welcome			whether it is awaited, and a random number of its own
 *	rank: a frame of nothing	it has heard that, so that its hello is none that was
 *recorded both: frames
 *
 * In a job with a key (HA_NCCL_JOB_KEY_FILE) hello and welcome carry a code by it, and each frame
 * one by a key that is made of both random numbers: only who has the job's key takes a rank's
 * place, or is taken for the root. All integers are in this machine's order, as data is.
 */
#ifndef NP_BOOTSTRAP_WIRE_H
#define NP_BOOTSTRAP_WIRE_H

#include "base/job_key.h"
#include "base/statement.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NP_HELLO_MAGIC 0x4e50424f4f543032ull /* "NPBOOT02" */
#define NP_NONCE_BYTES 16
#define NP_FRAME_ABORT UINT32_MAX

struct np_hello {
	uint64_t magic;
	uint64_t token;
	uint32_t rank;
	uint32_t nranks;
	uint64_t keyed; /* 1: `code` is one */
	uint8_t nonce[NP_NONCE_BYTES];
	uint8_t code[HA_HMAC_BYTES]; /* over what is before it */
};

enum np_verdict {
	NP_WELCOME = 1,
	NP_REFUSED_KEY, /* one has a job key, the other has none or another one */
	NP_NOT_AWAITED, /* another number of ranks, or this one is there already */
};

struct np_welcome {
	uint64_t magic;
	uint64_t verdict; /* enum np_verdict */
	uint8_t nonce[NP_NONCE_BYTES];
	uint8_t code[HA_HMAC_BYTES]; /* of NP_WELCOME: over the hello and what is before it */
};

/* `len` bytes follow, then a code if the socket is keyed. NP_FRAME_ABORT: `rank` left, no bytes
 * follow. */
struct np_frame {
	uint32_t len;
	uint32_t rank;
};

enum np_speaker { NP_SPEAKER_RANK = 1, NP_SPEAKER_ROOT = 2 };

/* One end of a socket. Closed and erased by np_sock_close. */
struct np_sock {
	int fd;	     /* -1: none */
	int stop_fd; /* readable: everything ends with ECANCELED; -1: none */
	enum np_speaker self;
	bool keyed;
	struct ha_hmac_key key;
	uint64_t said, heard; /* frames */
};

/*
 * Greetings. key: NULL in a job without one, else the code is put in, or looked at. False: there is
 * none, it is wrong, or the key cannot be used here; or there is one and we have no key.
 */
bool np_hello_seal(const struct ha_job_key *key, struct np_hello *hello) HA_MUST_CHECK;
bool np_hello_is_genuine(const struct ha_job_key *key, const struct np_hello *hello) HA_MUST_CHECK;
bool np_welcome_seal(const struct ha_job_key *key, const struct np_hello *hello,
		     struct np_welcome *welcome) HA_MUST_CHECK;
bool np_welcome_is_genuine(const struct ha_job_key *key, const struct np_hello *hello,
			   const struct np_welcome *welcome) HA_MUST_CHECK;
void np_draw_nonce(uint8_t nonce[NP_NONCE_BYTES]);

/* From both greetings on, which are genuine. Without a key: does nothing. False: as above. */
bool np_sock_authenticate(struct np_sock *sock, const struct ha_job_key *key,
			  const struct np_hello *hello,
			  const struct np_welcome *welcome) HA_MUST_CHECK;
void np_sock_close(struct np_sock *sock);

/* ---- bytes and frames, until a deadline (UINT64_MAX: none); false with errno ---- */

bool np_wait(int fd, short events, uint64_t deadline_ns, int stop_fd);
bool np_send_all(const struct np_sock *sock, const void *data, size_t len, uint64_t deadline_ns);
bool np_recv_all(const struct np_sock *sock, void *data, size_t len, uint64_t deadline_ns);

/* frame->len bytes of body; none for an abort. */
bool np_frame_send(struct np_sock *sock, const struct np_frame *frame, const void *body, size_t len,
		   uint64_t deadline_ns);
/* What follows a frame's head that was received: `len` bytes, and its code. EBADMSG: it is not the
 * other end's. */
bool np_frame_recv(struct np_sock *sock, const struct np_frame *head, void *body, size_t len,
		   uint64_t deadline_ns);
/* The same of a frame of nothing, of which all bytes are there. */
bool np_frame_is_genuine(struct np_sock *sock, const struct np_frame *head,
			 const uint8_t code[HA_CODE_BYTES]);

#endif
