/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-gin-perf: drives a plugin's table for puts and signals as NCCL's proxy does, two processes
 * on a simulated fabric, in host memory, and says what an operation costs. Every byte is compared,
 * and every signal has to have counted once, also while ports go down (--cut).
 *
 * Rank 0 puts, rank 1 is put to; both drive their ginProgress all the time, as NCCL's thread does.
 */
#include "gin_api.h"

#include "tools/common/clock.h"
#include "tools/common/fabric.h"
#include "tools/common/logger.h"
#include "tools/common/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS	  2
#define DEPTH	  32u /* what NCCL has under way to a rank */
#define SIZE_MOST (1u << 20)
#define LIMIT_S	  60
#define CUT_MS	  150 /* a port stays down, and up, so long */

/* What an operation is, and when it is over. */
enum what {
	PUT_QUIET,   /* one at a time: until it is complete */
	SIGNAL_HALF, /* a put with a signal there, and one back: half of that */
	RATE,	     /* as many as there is room for, with a signal behind each */
	WHATS
};

static const char *const what_names[WHATS] = {"put", "signal", "rate"};

static struct {
	const char *plugin, *json;
	enum gin_api api;
	enum what what;
	size_t size;
	unsigned int n;
	bool cut;
	int rank, fd; /* -1: this is who starts them */
} options = {.api = GIN_V11, .size = 8, .n = 2000, .rank = -1, .fd = -1};

static struct {
	const ncclGin_v11_t *gin;
	void *ctx, *listen, *coll;
	uint8_t *window, *source;
	uint64_t *words;
	void *window_mr, *source_mr, *words_mr;
	uint64_t samples_ns[1u << 20];
	unsigned int count;
} r;

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "nccl-gin-perf: rank %d: %s\n", options.rank, what);
	exit(1);
}

/* ---- a rank --------------------------------------------------------------------------------- */

static void progress(void)
{
	need(r.gin->ginProgress(r.coll) == ncclSuccess, "ginProgress failed");
}

static void say(const void *bytes, size_t size)
{
	need(send(options.fd, bytes, size, 0) == (ssize_t)size, "the other rank is gone");
}

/* Makes progress until it has come: the other one may need it. */
static void hear(void *bytes, size_t size)
{
	const uint64_t since_ns = np_now_ns();
	ssize_t got;

	while ((got = recv(options.fd, bytes, size, MSG_DONTWAIT)) != (ssize_t)size) {
		need(got < 0 && errno == EAGAIN, "the other rank is gone");
		need(np_now_ns() - since_ns < LIMIT_S * NP_NS_PER_S, "the other rank is silent");
		if (r.coll)
			progress();
	}
}

static void meet(void)
{
	char byte = 0;

	say(&byte, 1);
	hear(&byte, 1);
}

static void connect_ranks(void)
{
	uint8_t own[NCCL_NET_HANDLE_MAXSIZE] = {0}, other[NCCL_NET_HANDLE_MAXSIZE];
	void *handles[RANKS];
	int devices = 0;

	handles[options.rank] = own;
	handles[1 - options.rank] = other;
	need(r.gin->init(&r.ctx, 1, np_logger) == ncclSuccess, "init failed");
	need(r.gin->devices(&devices) == ncclSuccess && devices > 0,
	     "there are no devices for GIN: is it HA_NCCL_GIN=1?");
	need(r.gin->listen(r.ctx, 0, own, &r.listen) == ncclSuccess, "listen failed");
	say(own, sizeof(own));
	hear(other, sizeof(other));
	need(r.gin->connect(r.ctx, handles, RANKS, options.rank, r.listen, &r.coll) == ncclSuccess,
	     "connect failed");
}

static void *memory(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(at != MAP_FAILED, "no memory");
	return at;
}

static void *registered(void *at, size_t size, uint64_t flags)
{
	void *mr, *for_kernels;

	need(r.gin->regMrSym(r.coll, at, size, NCCL_PTR_HOST, flags, &mr, &for_kernels) ==
		 ncclSuccess,
	     "regMrSym failed");
	return mr;
}

static void register_memory(void)
{
	r.window = memory(DEPTH * SIZE_MOST);
	r.source = memory(DEPTH * SIZE_MOST);
	r.words = memory(4096);
	r.window_mr = registered(r.window, DEPTH * SIZE_MOST, 0);
	r.source_mr = registered(r.source, DEPTH * SIZE_MOST, 0);
	r.words_mr = registered(r.words, 4096, NCCL_NET_MR_FLAG_FORCE_SO);
}

static uint8_t byte_of(unsigned int k)
{
	return (uint8_t)(1 + k % 251);
}

static size_t place(unsigned int k)
{
	return (size_t)(k % DEPTH) * SIZE_MOST;
}

static void *put(unsigned int k, bool has_signal)
{
	const uint32_t to = (uint32_t)(1 - options.rank);
	void *request;

	memset(r.source + place(k), byte_of(k), options.size);
	need((has_signal ? r.gin->iputSignal(r.coll, place(k), r.source_mr, options.size, place(k),
					     r.window_mr, to, 0, r.words_mr, 1,
					     NCCL_NET_SIGNAL_OP_INC, &request)
			 : r.gin->iput(r.coll, place(k), r.source_mr, options.size, place(k),
				       r.window_mr, to, &request)) == ncclSuccess,
	     "a put failed");
	return request;
}

static bool is_done(void *request)
{
	int done;

	need(r.gin->test(r.coll, request, &done) == ncclSuccess, "test failed");
	return done != 0;
}

static uint64_t word(void)
{
	return __atomic_load_n(&r.words[0], __ATOMIC_ACQUIRE);
}

static void expect(unsigned int k)
{
	for (size_t i = 0; i < options.size; i++)
		need(r.window[place(k) + i] == byte_of(k), "a byte is wrong");
}

/* So many signals have come; progress meanwhile. The limit is for the next one, not for all. */
static void await(uint64_t count)
{
	uint64_t since_ns = np_now_ns(), seen = word();

	while (word() < count) {
		progress();
		if (word() != seen) {
			seen = word();
			since_ns = np_now_ns();
		}
		need(np_now_ns() - since_ns < LIMIT_S * NP_NS_PER_S, "a signal does not come");
	}
	need(word() == count || options.what == RATE, "a signal has counted twice");
}

static void sample(uint64_t since_ns)
{
	if (r.count < sizeof(r.samples_ns) / sizeof(r.samples_ns[0]))
		r.samples_ns[r.count++] = np_now_ns() - since_ns;
}

/* ---- what is measured ----------------------------------------------------------------------- */

static void put_quiet(void)
{
	for (unsigned int k = 0; options.rank == 0 && k < options.n; k++) {
		const uint64_t since_ns = np_now_ns();
		void *request = put(k, false);

		while (!is_done(request))
			progress();
		sample(since_ns);
	}
	meet();
	for (unsigned int k = options.n > DEPTH ? options.n - DEPTH : 0;
	     options.rank == 1 && k < options.n; k++)
		expect(k);
}

static void one_way(unsigned int k)
{
	void *request = put(k, true);

	while (!is_done(request))
		progress();
}

static void signal_half(void)
{
	for (unsigned int k = 0; k < options.n; k++) {
		const uint64_t since_ns = np_now_ns();

		if (options.rank == 0)
			one_way(k);
		await(k + 1);
		expect(k);
		if (options.rank == 1)
			one_way(k);
		else
			sample(since_ns);
	}
	for (unsigned int k = 0; k < r.count; k++)
		r.samples_ns[k] /= 2;
}

/* The receiver looks at the last of those that it has room for, when all have come. */
static void rate(void)
{
	void *requests[DEPTH];
	unsigned int begun = 0, done = 0;
	const uint64_t since_ns = np_now_ns();

	while (options.rank == 0 && done < options.n) {
		progress();
		if (begun < options.n && begun - done < DEPTH) {
			requests[begun % DEPTH] = put(begun, true);
			begun++;
		}
		while (done < begun && is_done(requests[done % DEPTH]))
			done++;
	}
	if (options.rank == 0)
		sample(since_ns);
	else
		await(options.n);
	meet();
	need(options.rank == 0 || word() == options.n, "signals have counted twice");
	for (unsigned int k = options.n > DEPTH ? options.n - DEPTH : 0;
	     options.rank == 1 && k < options.n; k++)
		expect(k);
}

/* ---- what it says --------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static double quantile_us(double q)
{
	return (double)r.samples_ns[(unsigned int)(q * (r.count - 1))] / 1e3;
}

static void write_figures(FILE *out)
{
	qsort(r.samples_ns, r.count, sizeof(r.samples_ns[0]), by_size);
	fprintf(out, "{\"table\": \"%s\", \"what\": \"%s\", \"size\": %zu, \"n\": %u, ",
		gin_api_symbols[options.api], what_names[options.what], options.size, options.n);
	if (options.what == RATE)
		fprintf(out, "\"per_s\": %.0f, \"gb_per_s\": %.3f}\n",
			options.n / ((double)r.samples_ns[0] / 1e9),
			(double)options.size * options.n / (double)r.samples_ns[0]);
	else
		fprintf(out, "\"p50_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f}\n",
			quantile_us(0.5), quantile_us(0.99), quantile_us(1));
}

static void report(void)
{
	FILE *out;

	need(r.count > 0, "nothing to report");
	if (!options.json) {
		write_figures(stdout);
		need(fflush(stdout) == 0, "the report cannot be written");
		return;
	}
	out = fopen(options.json, "w");
	need(out != NULL, "the report cannot be written");
	write_figures(out);
	need(fclose(out) == 0, "the report cannot be written");
}

static int run_rank(void)
{
	void *library = dlopen(options.plugin, RTLD_NOW | RTLD_LOCAL);
	const void *table = library ? dlsym(library, gin_api_symbols[options.api]) : NULL;

	need(table, library ? "the plugin has no such table" : dlerror());
	r.gin = gin_api_load(options.api, table);
	connect_ranks();
	register_memory();
	meet();
	if (options.what == PUT_QUIET)
		put_quiet();
	else if (options.what == SIGNAL_HALF)
		signal_half();
	else
		rate();
	meet();
	if (options.rank == 0)
		report();
	need(r.gin->deregMrSym(r.coll, r.window_mr) == ncclSuccess &&
		 r.gin->deregMrSym(r.coll, r.source_mr) == ncclSuccess &&
		 r.gin->deregMrSym(r.coll, r.words_mr) == ncclSuccess &&
		 r.gin->closeColl(r.coll) == ncclSuccess &&
		 r.gin->closeListen(r.listen) == ncclSuccess &&
		 r.gin->finalize(r.ctx) == ncclSuccess,
	     "the end failed");
	return 0;
}

/* ---- who starts them ------------------------------------------------------------------------ */

static pid_t start(const struct np_fabric *fabric, int rank, int fd, int argc, char **argv)
{
	static char self[4096];
	char number[16], descriptor[16], host[16];
	const char *args[64];
	int n = 0;

	need(np_own_path(self, sizeof(self)) && argc < 40, "the command line is too long");
	snprintf(number, sizeof(number), "%d", rank);
	snprintf(descriptor, sizeof(descriptor), "%d", fd);
	snprintf(host, sizeof(host), "%d", rank);
	args[n++] = fabric->tool;
	args[n++] = "run";
	args[n++] = fabric->name;
	args[n++] = host;
	args[n++] = "--";
	args[n++] = self;
	for (int i = 1; i < argc; i++)
		args[n++] = argv[i];
	args[n++] = "--rank";
	args[n++] = number;
	args[n++] = "--descriptor";
	args[n++] = descriptor;
	args[n] = NULL;
	return np_spawn(args, -1);
}

/* Ports of rail 0 and rail 1 go down and come back in turns, one at a time. */
static void cut(const struct np_fabric *fabric, unsigned int turn)
{
	const char *rail = turn / 2 % 2 ? "1" : "0", *host = turn / 4 % 2 ? "1" : "0";
	const char *const args[] = {
	    fabric->tool, "link", fabric->name, host, rail, turn % 2 ? "up" : "down", NULL};
	char err[256];

	free(np_run_tool(args, 5, err, sizeof(err)));
}

/* Who ends this wants no fabric and no ranks to be left. */
static volatile sig_atomic_t is_asked_to_end;

static void is_asked(int number)
{
	(void)number;
	is_asked_to_end = 1;
}

/* 0: both have ended well. */
static int wait_for_both(const struct np_fabric *fabric, const pid_t *pids)
{
	const uint64_t until_ns = np_now_ns() + 2 * LIMIT_S * NP_NS_PER_S;
	uint64_t cut_ns = np_now_ns() + 2 * CUT_MS * NP_NS_PER_MS;
	unsigned int turn = 0;
	int left = RANKS, worst = 0, status;

	while (left > 0) {
		const pid_t ended = waitpid(-1, &status, WNOHANG);

		if (ended > 0) {
			left--;
			worst |= WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		}
		if (left > 0 && (worst || is_asked_to_end || np_now_ns() > until_ns)) {
			kill(pids[0], SIGKILL);
			kill(pids[1], SIGKILL);
			worst = 1;
		}
		if (options.cut && np_now_ns() > cut_ns) {
			cut(fabric, turn++);
			cut_ns = np_now_ns() + CUT_MS * NP_NS_PER_MS;
		}
		usleep(1000);
	}
	if (options.cut)
		fprintf(stderr, "nccl-gin-perf: a port went down %u times\n", (turn + 1) / 2);
	return worst;
}

static int launch(int argc, char **argv)
{
	const struct np_fabric_options wanted = {.prefix = "gin-perf", .hosts = 2, .rails = 2};
	struct np_fabric fabric;
	char err[512];
	int fds[2], status;
	pid_t pids[RANKS];

	if (!np_fabric_open(&fabric, &wanted, err, sizeof(err))) {
		fprintf(stderr, "nccl-gin-perf: %s\n", err);
		return 1;
	}
	signal(SIGINT, is_asked);
	signal(SIGTERM, is_asked);
	need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0, "no sockets");
	for (int rank = 0; rank < RANKS; rank++)
		pids[rank] = start(&fabric, rank, fds[rank], argc, argv);
	close(fds[0]);
	close(fds[1]);
	status = pids[0] > 0 && pids[1] > 0 ? wait_for_both(&fabric, pids) : 1;
	np_fabric_close(&fabric);
	return status;
}

/* ---- the command line ----------------------------------------------------------------------- */

static const char usage[] =
    "usage: nccl-gin-perf --plugin FILE [OPTION...]\n"
    "  --table SYMBOL   ncclGinPlugin_v11 (the default) to ncclRmaPlugin_v14\n"
    "  --what WHAT      put (until it is complete), signal (half of there and back), rate\n"
    "  --size BYTES     8; up to 1048576\n"
    "  -n N             2000 operations\n"
    "  --cut            ports go down and come back meanwhile; says how often\n"
    "  --json FILE      in place of standard output\n"
    "HA_NCCL_GIN=1 is set. Status 0: every byte was right and every signal counted once.\n";

static void refuse(const char *what, const char *value)
{
	fprintf(stderr, "nccl-gin-perf: %s: %s\n%s", what, value, usage);
	exit(2);
}

static unsigned long number(const char *text, unsigned long most)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || text == end || value < 1 || value > most)
		refuse("no such number here", text);
	return value;
}

static enum gin_api api_of(const char *symbol)
{
	for (int api = 0; api < GIN_APIS; api++)
		if (!strcmp(symbol, gin_api_symbols[api]))
			return (enum gin_api)api;
	refuse("no such table", symbol);
	return GIN_APIS;
}

static enum what what_of(const char *name)
{
	for (int what = 0; what < WHATS; what++)
		if (!strcmp(name, what_names[what]))
			return (enum what)what;
	refuse("nothing of that name is measured", name);
	return WHATS;
}

static void parse(int argc, char **argv)
{
	enum { PLUGIN = 256, TABLE, WHAT, SIZE, CUT, JSON, RANK, DESCRIPTOR, HELP };
	static const struct option known[] = {{"plugin", required_argument, NULL, PLUGIN},
					      {"table", required_argument, NULL, TABLE},
					      {"what", required_argument, NULL, WHAT},
					      {"size", required_argument, NULL, SIZE},
					      {"cut", no_argument, NULL, CUT},
					      {"json", required_argument, NULL, JSON},
					      {"rank", required_argument, NULL, RANK},
					      {"descriptor", required_argument, NULL, DESCRIPTOR},
					      {"help", no_argument, NULL, HELP},
					      {NULL, 0, NULL, 0}};
	int option;

	while ((option = getopt_long(argc, argv, "n:", known, NULL)) != -1)
		switch (option) {
		case PLUGIN:
			options.plugin = optarg;
			break;
		case TABLE:
			options.api = api_of(optarg);
			break;
		case WHAT:
			options.what = what_of(optarg);
			break;
		case SIZE:
			options.size = number(optarg, SIZE_MOST);
			break;
		case 'n':
			options.n = (unsigned int)number(optarg, 10000000);
			break;
		case CUT:
			options.cut = true;
			break;
		case JSON:
			options.json = optarg;
			break;
		case RANK:
			options.rank = (int)strtol(optarg, NULL, 10);
			break;
		case DESCRIPTOR:
			options.fd = (int)strtol(optarg, NULL, 10);
			break;
		case HELP:
			fputs(usage, stdout);
			exit(0);
		default:
			exit(2);
		}
	if (optind < argc)
		refuse("what is this", argv[optind]);
	if (!options.plugin)
		refuse("it says no plugin", "--plugin FILE");
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	setenv("HA_NCCL_GIN", "1", 1);
	setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
	return options.rank >= 0 ? run_rank() : launch(argc, argv);
}
