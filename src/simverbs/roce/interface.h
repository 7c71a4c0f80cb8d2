/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network interface as a device sees it: addresses, MTU, whether its link is up, and news of all
 * that from the kernel. One thread at a time.
 */
#ifndef SV_ROCE_INTERFACE_H
#define SV_ROCE_INTERFACE_H

#include "simverbs/engine.h"

#include <net/if.h>

struct sv_roce_interface {
	char name[IF_NAMESIZE];
	unsigned index;
	/* Not zero: this address and no other of the interface's, "eth0@10.0.0.9". */
	union ibv_gid only;
	int news_fd; /* readable when something may have changed; -1: not asked */
};

struct sv_roce_interface_state {
	bool there;
	bool up; /* set up, and with a carrier */
	bool loopback;
	uint32_t mtu_bytes;
	uint8_t mac[6];
	/* Slot 0 is the link-local IPv6 address's, as the kernel's drivers have it. All zero:
	 * empty. */
	union ibv_gid gids[SV_MAX_GIDS];
};

/* Name and index from "eth0" or "eth0@ADDRESS". 0, or -errno after a message. */
int sv_roce_interface_init(struct sv_roce_interface *itf, const char *text);
/* From now on there are news. 0 or -errno. */
int sv_roce_interface_watch(struct sv_roce_interface *itf);
void sv_roce_interface_close(struct sv_roce_interface *itf);

/* Whether the kernel had something to tell. Never waits. */
bool sv_roce_interface_news(struct sv_roce_interface *itf);
/* How the interface is. An address that is still there keeps its slot of `state->gids`, which is
 * what the caller had before, or zeros. */
void sv_roce_interface_read(const struct sv_roce_interface *itf,
			    struct sv_roce_interface_state *state);

/* All zero: there is none. */
bool sv_roce_no_gid(const union ibv_gid *gid);

/* The largest path MTU whose packets an interface takes whole. */
enum ibv_mtu sv_roce_path_mtu(uint32_t mtu_bytes);

#endif
