/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet frames of a capture file (pcap, little-endian), as RoCE v2 datagrams with their
 * addresses. */
#ifndef TESTS_SIMVERBS_ROCE_CAPTURE_H
#define TESTS_SIMVERBS_ROCE_CAPTURE_H

#include "simverbs/roce/frame.h"

struct captured {
	const uint8_t *frame; /* into the capture, as the datagram */
	size_t frame_bytes;
	struct sv_roce_flow flow;
	const uint8_t *datagram; /* from the BTH on */
	size_t length;		 /* with ICRC */
};

struct capture {
	uint8_t *bytes;
	size_t size, at;
};

/* False: there is no such file, or it is none. capture_close() in any case. */
bool capture_open(struct capture *c, const char *path);
/* The next UDP datagram to SV_ROCE_PORT; false: there is none any more. */
bool capture_next(struct capture *c, struct captured *packet);
void capture_close(struct capture *c);

#endif
