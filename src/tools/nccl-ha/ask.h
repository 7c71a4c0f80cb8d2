/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking a process for something, over the socket next to its statistics file (nccl_ha/control.h),
 * and reading what it says. It may be of another version, stuck, or meant to harm: every wait has
 * an end, and an answer that makes no sense is none.
 */
#ifndef NH_ASK_H
#define NH_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What becomes of a connection: the words of NCCL_HA_FATES. */
enum nh_fate {
	NH_FATE_ACTIVE,
	NH_FATE_MOVING,
	NH_FATE_AWAY,
	NH_FATE_HOME,
	NH_FATE_REFUSED,
	NH_FATE_FAILED,
	NH_FATE_COUNT
};

struct nh_place {
	char path[24]; /* "1.3" */
	char port[80]; /* "mlx5_0:1" or "-" */
};

struct nh_asked {
	uint64_t id;
	bool is_send;
	enum nh_fate fate;
	struct nh_place at;
	uint32_t epoch;
	bool home;
	char why[160];
};

struct nh_answer {
	struct nh_asked *connections;
	size_t n;
};

/*
 * Sends a request without its line feed to the process of this statistics file, which belongs to
 * `uid`. False with a reason in err: it cannot be asked, did not answer, or said no. Pair with
 * _free in any case.
 */
bool nh_ask(const char *stats_path, unsigned int uid, const char *request, struct nh_answer *answer,
	    char *err, size_t err_len);
void nh_answer_free(struct nh_answer *answer);

#endif
