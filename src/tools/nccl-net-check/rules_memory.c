/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about memory registration. */
#include "link.h"
#include "rules.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

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
			link_transfer(
			    t, &link,
			    &(struct message){from, out_mr[i], to, in_mr[i], ranges[i].size, i},
			    "a message from overlapping registrations");
		}
		if (pattern_mismatch(in, REGION, 8) < REGION)
			check_fail(t, "wrong data through overlapping registrations");
		MUST(t, dereg_mr, link.send, out_mr[round]);
		MUST(t, dereg_mr, link.recv, in_mr[round]);
	}
}

/* A registration that is called global is used through another connection. */
void rule_mr_global(struct check *t)
{
	enum { SIZE = 5000 };
	struct link registered, used;
	struct buffer out, in;

	if (!t->props.regIsGlobal) {
		check_note(t, "regIsGlobal is 0: nothing is promised");
		return;
	}
	link_open_local(t, t->opt->dev, &registered);
	link_open_local(t, t->opt->dev, &used);
	buffer_open(t, &out, registered.send, SIZE);
	buffer_open(t, &in, registered.recv, SIZE);
	pattern_fill(out.data, SIZE, 6);
	link_transfer(t, &used,
		      &(struct message){out.data, out.mhandle, in.data, in.mhandle, SIZE, 1},
		      "a message from memory registered through another comm");
	pattern_check(t, in.data, SIZE, 6, "message from memory registered through another comm");
}

/* ---- dmabuf ------------------------------------------------------------------------------- */

/*
 * A dmabuf over `size` bytes of a memfd, or the memfd itself where the kernel makes none: software
 * devices take that for one.
 */
static int make_dmabuf(struct check *t, size_t size, char **data)
{
	int memory = memfd_create("nccl-net-check", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (memory < 0 || ftruncate(memory, (off_t)size) != 0)
		check_skip(t, "cannot make a memfd: %s", strerror(errno));
	*data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (*data == MAP_FAILED)
		check_skip(t, "cannot map a memfd: %s", strerror(errno));
	int maker = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (maker >= 0) {
		struct udmabuf_create create = {.memfd = (unsigned int)memory, .size = size};
		fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK);
		int dmabuf = ioctl(maker, UDMABUF_CREATE, &create);
		close(maker);
		if (dmabuf >= 0) {
			close(memory);
			return dmabuf;
		}
	}
	return memory;
}

static void *register_dmabuf(struct check *t, void *comm, size_t size, char **data)
{
	void *mhandle = NULL;
	int fd = make_dmabuf(t, size, data);
	ncclResult_t result =
	    CALL(t, reg_mr_dmabuf, comm, *data, size, NCCL_PTR_CUDA, 0, fd, &mhandle);

	if (result != ncclSuccess)
		check_skip(t, "regMrDmaBuf returned %s for a descriptor that may be no dmabuf",
			   np_result_name(result));
	/* NCCL closes it here, and another file gets its number: in one step, or a thread of the
	 * plugin may be that file's. */
	int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (other < 0 || dup2(other, fd) != fd)
		check_skip(t, "cannot reuse the descriptor's number: %s", strerror(errno));
	close(other);
	return mhandle;
}

void rule_dmabuf_fd(struct check *t)
{
	enum { SIZE = 64 * 1024, ROUNDS = 4 };
	struct link link;
	char *out, *in;

	if (!(t->props.ptrSupport & NCCL_PTR_DMABUF)) {
		check_note(t, "ptrSupport does not offer dmabuf");
		return;
	}
	link_open_local(t, t->opt->dev, &link);
	void *out_mr = register_dmabuf(t, link.send, SIZE, &out);
	void *in_mr = register_dmabuf(t, link.recv, SIZE, &in);
	for (int i = 0; i < ROUNDS; i++) {
		pattern_fill(out, SIZE, (uint64_t)i);
		link_transfer(t, &link, &(struct message){out, out_mr, in, in_mr, SIZE, i},
			      "a message from a dmabuf did not complete");
		pattern_check(t, in, SIZE, (uint64_t)i, "message from a dmabuf");
	}
	MUST(t, dereg_mr, link.send, out_mr);
	MUST(t, dereg_mr, link.recv, in_mr);
	link_close_local(t, &link);
}

/* ---- registration beside traffic ---------------------------------------------------------- */

struct race {
	struct check *t;
	struct link *link;
	char *memory;
	_Atomic bool stop;
	atomic_ulong rounds;
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
	enum { RACE_MS = 150, SIZE = 3000, MESSAGES = 100, ROUNDS = 100 };
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
	uint64_t until = check_deadline(t, RACE_MS), at_most = check_deadline(t, CHECK_STEP_MS);
	/* Both have had their turns, though one of them may have got no processor for a while. */
	while (check_now_ns() < until ||
	       ((messages < MESSAGES || race.rounds < ROUNDS) && check_now_ns() < at_most)) {
		if (messages < MESSAGES) {
			pattern_fill(out.data, SIZE, messages);
			link_transfer(t, &link,
				      &(struct message){out.data, out.mhandle, in.data, in.mhandle,
							SIZE, (int)messages},
				      "a message did not complete during registration");
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
	check_note(t, "%lu rounds of registration beside %u messages", atomic_load(&race.rounds),
		   messages);
}
