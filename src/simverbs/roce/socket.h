/* SPDX-License-Identifier: Apache-2.0 */
/* UDP sockets that send as the ICRC has it. */
#ifndef SV_ROCE_SOCKET_H
#define SV_ROCE_SOCKET_H

#include "simverbs/roce/peers.h"

/*
 * A socket for this family of addresses that is not bound yet. What it sends leaves by this
 * interface, in one piece, and with IPv4's identification 0: the kernel chooses that for a packet
 * that may not be fragmented and comes from a socket that is not connected. A descriptor, the
 * caller's, or -errno.
 */
int sv_roce_socket(sa_family_t family, unsigned ifindex);

#endif
