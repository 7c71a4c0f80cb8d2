/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts with signals behind them, from one process to another one, over a NIC that may fail:
 * nccl_ha/ibgda.h for the host, nccl_ha/ibgda.cuh for the thread that posts. It is a thread of the
 * host here; a kernel would do the same with what ha_ibgda_end_stream() returns.
 *
 *     cc -o ibgda ibgda.c $(pkg-config --cflags --libs nccl-ha-ibgda)
 *     ./ibgda receive PORT
 *     ./ibgda put ADDRESS PORT COUNT [MICROSECONDS]    one put in so much time
 */
#include <nccl_ha/ibgda.cuh>
#include <nccl_ha/ibgda.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS  64u /* a put goes to the next one */
#define REGION 1u
#define SIGNAL 0u

static uint64_t words[SLOTS];

static void must(int is_so, const char *what)
{
	if (is_so)
		return;
	perror(what);
	exit(1);
}

static void check(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-result));
	exit(1);
}

/* ---- the socket, which is the program's business ----------------------------------------- */

static struct sockaddr_in address_of(const char *address, const char *port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

	must(inet_pton(AF_INET, address, &to.sin_addr) == 1, address);
	return to;
}

static int connected(const char *address, const char *port)
{
	const struct sockaddr_in to = address_of(address, port);

	for (int tries = 0; tries < 100; tries++) {
		const int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
			return fd;
		close(fd);
		usleep(100000);
	}
	must(0, "connect");
	return -1;
}

static int accepted(const char *port)
{
	const struct sockaddr_in at = address_of("127.0.0.1", port);
	const int listens = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	int fd;

	setsockopt(listens, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	must(bind(listens, (const struct sockaddr *)&at, sizeof(at)) == 0, "bind");
	must(listen(listens, 1) == 0, "listen");
	fd = accept(listens, NULL, NULL);
	close(listens);
	return fd;
}

/* Where the peer's puts go to. */
static uint64_t told(int fd)
{
	uint64_t at;

	must(recv(fd, &at, sizeof(at), MSG_WAITALL) == sizeof(at), "recv");
	return at;
}

static void tell(int fd, uint64_t at)
{
	must(send(fd, &at, sizeof(at), 0) == sizeof(at), "send");
}

/* ---- both ends --------------------------------------------------------------------------- */

static struct ha_ibgda_context *context(void)
{
	const struct ha_ibgda_options options = {.size = sizeof(options), .outage_ms = 10000};
	struct ha_ibgda_context *opened;

	check(ha_ibgda_context_open(&options, &opened), "ha_ibgda_context_open");
	check(ha_ibgda_register(opened, REGION, words, sizeof(words)), "ha_ibgda_register");
	return opened;
}

static int puts_until(struct ha_ibgda_stream *stream, uint64_t peers, uint64_t count, unsigned us)
{
	for (uint64_t number = 1; number <= count; number++) {
		const uint64_t slot = number % SLOTS;
		struct ha_ibgda_work post = {
		    .put = {(uintptr_t)&words[slot], peers + 8 * slot, REGION, REGION, 8},
		    .signal = {SIGNAL, 1}};

		words[slot] = number;
		if (ha_ibgda_post(stream, &post) != HA_IBGDA_OK ||
		    ha_ibgda_quiet(stream, post.first + 1) != HA_IBGDA_OK)
			return 1;
		if (us)
			usleep(us);
	}
	return 0;
}

static int put(int fd, uint64_t count, unsigned us)
{
	struct ha_ibgda_status status = {.size = sizeof(status)};
	struct ha_ibgda_context *mine = context();
	const uint64_t peers = told(fd);
	struct ha_ibgda_end *end;
	int failed;

	check(ha_ibgda_put_open(mine, fd, &end), "ha_ibgda_put_open");
	puts("putting");
	fflush(stdout);
	failed = puts_until(ha_ibgda_end_stream(end), peers, count, us);
	check(ha_ibgda_end_status(end, &status), "ha_ibgda_end_status");
	printf("put %llu, %llu failovers%s%s\n", (unsigned long long)count,
	       (unsigned long long)status.failovers, status.reason ? ": " : "",
	       status.reason ? status.reason : "");
	ha_ibgda_end_close(end);
	check(ha_ibgda_context_close(mine), "ha_ibgda_context_close");
	return failed;
}

/* Until the peer is gone. Who sees a signal has the put before it, or a later one in its place. */
static int receive(int fd)
{
	struct ha_ibgda_status status = {.size = sizeof(status)};
	struct ha_ibgda_context *mine = context();
	struct ha_ibgda_end *end;
	unsigned long wrong = 0;
	uint64_t seen = 0;

	tell(fd, (uintptr_t)words);
	check(ha_ibgda_receive_open(mine, fd, &end), "ha_ibgda_receive_open");
	while (!status.reason) {
		const uint64_t *signals = ha_ibgda_end_signals(end);

		check(ha_ibgda_end_status(end, &status), "ha_ibgda_end_status");
		seen = __atomic_load_n(&signals[SIGNAL], __ATOMIC_ACQUIRE);
		wrong += __atomic_load_n(&words[seen % SLOTS], __ATOMIC_RELAXED) < seen;
		usleep(1000);
	}
	printf("received %llu, %lu wrong: %s\n", (unsigned long long)seen, wrong, status.reason);
	ha_ibgda_end_close(end);
	check(ha_ibgda_context_close(mine), "ha_ibgda_context_close");
	return wrong > 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "receive"))
		return receive(accepted(argv[2]));
	if (argc >= 5 && !strcmp(argv[1], "put"))
		return put(connected(argv[2], argv[3]), strtoull(argv[4], NULL, 10),
			   argc > 5 ? (unsigned)atoi(argv[5]) : 0);
	fprintf(stderr,
		"usage: ibgda receive PORT | ibgda put ADDRESS PORT COUNT [MICROSECONDS]\n");
	return 2;
}
