/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about memory registration. */
#include "link.h"
#include "rules.h"

#include <pthread.h>

#define REGION 65536

/* Twice the same range, overlapping ranges, odd addresses and lengths, freed in another order. */
void rule_mr_use(struct check *t)
{
	static const struct {
		size_t offset, size;
	} ranges[] = {{0, REGION}, {0, REGION},	 {1, 4095},
		      {4095, 2},   {100, 40000}, {REGION - 1, 1}};
	enum { COUNT = sizeof(ranges) / sizeof(ranges[0]) };
	void *out_mr[COUNT], *in_mr[COUNT];
	struct link link;

	link_open_local(t, t->opt->dev, &link);
	char *out = memory_alloc(t, REGION), *in = memory_alloc(t, REGION);
	pattern_fill(out, REGION, 8);
	for (int i = 0; i < COUNT; i++) {
		MUST(t, reg_mr, link.send, out + ranges[i].offset, ranges[i].size, NCCL_PTR_HOST,
		     &out_mr[i]);
		MUST(t, reg_mr, link.recv, in + ranges[i].offset, ranges[i].size, NCCL_PTR_HOST,
		     &in_mr[i]);
	}
	for (int round = 0; round < COUNT; round++) {
		/* those with an index below the round are deregistered */
		for (int i = round; i < COUNT; i++) {
			char *from = out + ranges[i].offset, *to = in + ranges[i].offset;
			void *recv = post_recv(t, link.recv, to, ranges[i].size, i, in_mr[i]);
			void *send =
			    post_send(t, link.send, from, ranges[i].size, i, out_mr[i], recv);
			await_both(t, send, recv, "a message from overlapping registrations");
		}
		if (pattern_mismatch(in, REGION, 8) < REGION)
			check_fail(t, "wrong data through overlapping registrations");
		MUST(t, dereg_mr, link.send, out_mr[round]);
		MUST(t, dereg_mr, link.recv, in_mr[round]);
	}
}

struct race {
	struct check *t;
	struct link *link;
	char *memory;
	_Atomic bool stop;
	unsigned long rounds;
};

/* NCCL's service thread: user buffers come and go on comms that are busy. */
static void *register_and_deregister(void *arg)
{
	struct race *race = arg;
	struct check *t = race->t;

	while (!race->stop) {
		void *mr[8];
		for (int i = 0; i < 8; i++)
			MUST(t, reg_mr, i % 2 ? race->link->send : race->link->recv,
			     race->memory + i * 4096, 8192, NCCL_PTR_HOST, &mr[i]);
		for (int i = 0; i < 8; i++)
			MUST(t, dereg_mr, i % 2 ? race->link->send : race->link->recv, mr[i]);
		race->rounds++;
	}
	return NULL;
}

void rule_mr_race(struct check *t)
{
	enum { RACE_MS = 150, SIZE = 3000 };
	struct link link;
	struct buffer out, in;
	pthread_t thread;
	unsigned messages = 0;

	link_open_local(t, t->opt->dev, &link);
	buffer_open(t, &out, link.send, SIZE);
	buffer_open(t, &in, link.recv, SIZE);
	struct race race = {.t = t, .link = &link, .memory = memory_alloc(t, REGION)};
	if (pthread_create(&thread, NULL, register_and_deregister, &race) != 0)
		check_skip(t, "cannot start a thread");
	/* a plugin may only have so many messages on one connection to show another defect */
	uint64_t until = check_deadline(t, RACE_MS);
	while (check_now_ns() < until) {
		if (messages < 100) {
			pattern_fill(out.data, SIZE, messages);
			void *recv =
			    post_recv(t, link.recv, in.data, SIZE, (int)messages, in.mhandle);
			void *send = post_send(t, link.send, out.data, SIZE, (int)messages,
					       out.mhandle, recv);
			await_both(t, send, recv, "a message did not complete during registration");
			pattern_check(t, in.data, SIZE, messages, "message during registration");
			messages++;
		} else {
			/* isend looks the registration up even when it has to wait */
			void *request = NULL;
			MUST(t, isend, link.send, out.data, SIZE, 1, out.mhandle, &request);
		}
	}
	race.stop = true;
	pthread_join(thread, NULL);
	check_note(t, "%lu rounds of registration beside %u messages", race.rounds, messages);
}
