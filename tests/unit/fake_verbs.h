/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fakes of the verbs that device/ and memory/ call, linked into a test in place of the library's,
 * and a sysfs-like tree to go with them. Each answer is the test's to choose, so that devices no
 * machine has, and failures no device shows on demand, can be tested.
 *
 * For what a whole RDMA stack does, the tests on simverbs are the place.
 */
#ifndef HA_TESTS_FAKE_VERBS_H
#define HA_TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_MAX_DEVICES 40
#define FAKE_MAX_GIDS	 16
#define FAKE_MAX_EVENTS	 128

struct fake_gid {
	union ibv_gid gid;
	int roce_version; /* 0: InfiniBand */
};

struct fake_port {
	struct ibv_port_attr attr;
	struct fake_gid gids[FAKE_MAX_GIDS];
	uint16_t pkeys[4];
	int query_error;       /* what ibv_query_port returns */
	void (*queried)(void); /* what happens before it does; NULL: nothing */
};

struct fake_device {
	struct ibv_device device;
	struct ibv_context ctx;
	struct ibv_device_attr attr;
	struct fake_port ports[3]; /* [1], [2] */
	int open_errno;		   /* not 0: opening fails */
	int open_refusals;	   /* so often opening fails before */
	int dmabuf_errno;	   /* of a registration with a bad descriptor */
	int reg_errno;		   /* not 0: registering memory fails */
	int dereg_error;	   /* not 0: what ending a registration returns, and does not */

	/* What happened. */
	int opens, closes, pds;
	atomic_int regs, deregs;  /* successful ones */
	unsigned int last_access; /* of the last registration: only for tests of one thread */
	uintptr_t last_addr;
	size_t last_length;
	uint64_t last_offset;
	int last_fd;

	struct ibv_async_event events[FAKE_MAX_EVENTS];
	int nevents, next_event, unacked;
	bool events_broken;	/* reading fails with EIO, as after an unbind */
	bool no_gid_table_call; /* only entry by entry, as old kernels have it */
	bool refuses_relaxed;
};

extern struct fake_device fake_devices[FAKE_MAX_DEVICES];
extern int fake_ndevices;
extern char fake_sysfs[64]; /* root of the tree, the part that is /sys on a real system */

/* Empties everything and makes a new tree. Pair with fake_verbs_done, which removes it. */
void fake_verbs_reset(void);
void fake_verbs_done(void);

/*
 * A device with one active 400 Gb/s RoCE port on NUMA node 0, GIDs fe80::1 and ::ffff:10.0.0.N
 * each as RoCE v1 and v2, and a PCI address made from its number.
 */
struct fake_device *fake_device_add(const char *name);

void fake_gid_set(struct fake_port *port, int index, const char *address, int roce_version);
/* Writes ROOT/path, a printf-style path below fake_sysfs, making the folders. */
void fake_sysfs_write(const char *text, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
void fake_event(struct fake_device *device, enum ibv_event_type type, int port_num);

#endif
