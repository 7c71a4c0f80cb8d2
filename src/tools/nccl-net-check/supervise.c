/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor of one rule: forks its ranks, waits with a time limit, turns a crash or a hang
 * into a FAIL that names the call in which it happened. It never loads the plugin itself.
 */
#include "supervise.h"
#include "place.h"
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_LIMIT_S 20
#define CYCLE_LIMIT_MS	50 /* a cycle of rule leaks, on average */

struct ranks {
	pid_t pid[CHECK_RANKS]; /* 0: has ended */
	int count;
	uint64_t queued_ns[CHECK_RANKS]; /* so far, for a processor */
};

static const char *rank_title(const struct rule *rule, int rank)
{
	if (rule->kind == RULE_LOCAL)
		return "the process";
	return rank == CHECK_SENDER ? "the sending process" : "the receiving process";
}

static _Noreturn void be_rank(const struct rule *rule, struct check *t)
{
	struct rlimit no_core = {0, 0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &no_core);
	if (t->opt->fabric)
		place_rank(t->opt, t->rank);
	for (int i = 0; i < t->opt->neach; i++)
		setenv(t->opt->each[i].name, t->opt->each[i].value[t->rank], 1);
	if (!(rule->flags & RULE_RAW)) {
		check_load(t);
		check_init(t);
	}
	rule->run(t);
	check_part(t);
	_exit(0);
}

/* false: fork failed, errno says why. */
static bool start_ranks(const struct rule *rule, struct check *t, struct ranks *ranks)
{
	int wire[2] = {-1, -1};

	if (rule->kind == RULE_PAIR && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire))
		return false;
	ranks->count = rule->kind == RULE_PAIR ? 2 : 1;
	for (int r = 0; r < ranks->count; r++) {
		fflush(NULL);
		ranks->pid[r] = fork();
		if (ranks->pid[r] < 0) {
			ranks->pid[r] = 0;
			ranks->count = r;
			break;
		}
		if (ranks->pid[r] == 0) {
			t->rank = r;
			t->peer_fd = wire[r];
			if (wire[1 - r] >= 0)
				close(wire[1 - r]);
			be_rank(rule, t);
		}
	}
	if (wire[0] >= 0) {
		close(wire[0]);
		close(wire[1]);
	}
	return ranks->count == (rule->kind == RULE_PAIR ? 2 : 1);
}

static void stop_ranks(struct ranks *ranks)
{
	for (int r = 0; r < ranks->count; r++) {
		if (ranks->pid[r] > 0) {
			kill(ranks->pid[r], SIGKILL);
			while (waitpid(ranks->pid[r], NULL, 0) < 0 && errno == EINTR)
				;
			ranks->pid[r] = 0;
		}
	}
}

/* Where a rank is, or was when it ended: ", in test for 12.3 s". */
static const char *whereabouts(const struct check_report *report, int rank, char *buf, size_t len)
{
	const char *call = atomic_load(&report->rank[rank].call);
	uint64_t since_ns = atomic_load(&report->rank[rank].since_ns);

	buf[0] = 0;
	if (call)
		snprintf(buf, len, ", in %s for %.1f s", call,
			 (double)(check_now_ns() - since_ns) / 1e9);
	return buf;
}

static void fail(struct check_result *result, const char *what, const char *where)
{
	result->outcome = CHECK_FAIL;
	snprintf(result->text, sizeof(result->text), "%s%s", what, where);
}

/* What the end of a rank says when it has not given a verdict. true: the rule has failed. */
static bool judge_exit(const struct rule *rule, const struct check_report *report, int rank,
		       int status, struct check_result *result)
{
	char what[128], where[96];

	if (atomic_load(&report->outcome) != CHECK_NONE ||
	    (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
	    atomic_load(&report->rank[rank].dies_on_purpose))
		return false;
	if (WIFSIGNALED(status))
		snprintf(what, sizeof(what), "%s was ended by %s", rank_title(rule, rank),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(what, sizeof(what), "%s exited with status %d", rank_title(rule, rank),
			 WEXITSTATUS(status));
	fail(result, what, whereabouts(report, rank, where, sizeof(where)));
	return true;
}

static void judge_timeout(const struct rule *rule, const struct check_report *report,
			  const struct ranks *ranks, int limit_s, struct check_result *result)
{
	char what[128], where[96], text[256] = "";

	snprintf(what, sizeof(what), "no end after %d s", limit_s);
	for (int r = 0; r < ranks->count; r++) {
		if (ranks->pid[r] > 0 && whereabouts(report, r, where, sizeof(where))[0])
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "; %s%s",
				 rank_title(rule, r), where);
	}
	fail(result, what, text);
}

/* ---- time that counts ------------------------------------------------------------------------ */

/* Of a rule's time limit, how many times that may not count: what hangs in a loop waits for a
 * processor, too. */
#define NOT_COUNTED_MAX 3

/* On a busy machine a rule takes long because its processes do not get to run. That is no fault of
 * the plugin's: the longest that one of them waited for a processor does not count. */
static uint64_t longest_queued_ns(struct ranks *ranks)
{
	uint64_t longest = 0;

	for (int r = 0; r < ranks->count; r++) {
		uint64_t so_far = ranks->pid[r] > 0 ? thread_queued_ns(ranks->pid[r]) : 0;

		if (so_far > ranks->queued_ns[r])
			ranks->queued_ns[r] = so_far;
		if (ranks->queued_ns[r] > longest)
			longest = ranks->queued_ns[r];
	}
	return longest;
}

static bool is_over(struct ranks *ranks, uint64_t began_ns, uint64_t limit_ns)
{
	uint64_t took_ns = check_now_ns() - began_ns, queued;

	if (took_ns <= limit_ns)
		return false;
	queued = longest_queued_ns(ranks);
	if (queued > NOT_COUNTED_MAX * limit_ns)
		queued = NOT_COUNTED_MAX * limit_ns;
	return took_ns > limit_ns + queued;
}

/* Waits until all have ended or one has given a verdict. */
static void await_ranks(const struct rule *rule, const struct check_report *report,
			struct ranks *ranks, int limit_s, struct check_result *result)
{
	uint64_t limit_ns = (uint64_t)limit_s * UINT64_C(1000000000), began_ns = check_now_ns();

	for (;;) {
		int alive = 0;
		for (int r = 0; r < ranks->count; r++) {
			int status;
			if (ranks->pid[r] == 0)
				continue;
			if (waitpid(ranks->pid[r], &status, WNOHANG) != ranks->pid[r]) {
				alive++;
				continue;
			}
			ranks->pid[r] = 0;
			if (judge_exit(rule, report, r, status, result))
				return;
		}
		if (atomic_load(&report->text_ready)) {
			result->outcome = (enum check_outcome)atomic_load(&report->outcome);
			snprintf(result->text, sizeof(result->text), "%s", report->text);
			return;
		}
		if (alive == 0) {
			result->outcome = CHECK_PASS;
			snprintf(result->text, sizeof(result->text), "%s", report->note);
			return;
		}
		if (is_over(ranks, began_ns, limit_ns)) {
			judge_timeout(rule, report, ranks, limit_s, result);
			return;
		}
		check_sleep_ms(1);
	}
}

void check_run_rule(const struct rule *rule, int api, const struct check_options *opt,
		    struct check_result *result)
{
	uint64_t start = check_now_ns();
	struct check t = {
	    .opt = opt, .api = api, .peer_fd = -1, .is_coll = rule->flags & RULE_COLL};
	struct ranks ranks = {.count = 0};
	int limit_s = (rule->limit_s ? rule->limit_s : DEFAULT_LIMIT_S) * opt->time_scale;
	if (rule->flags & RULE_CYCLES)
		limit_s += opt->cycles * CYCLE_LIMIT_MS / 1000 * opt->time_scale;

	if (opt->limit_s)
		limit_s = opt->limit_s;
	*result = (struct check_result){.rule = rule, .api = api};
	t.report = mmap(NULL, sizeof(*t.report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (t.report == MAP_FAILED || !start_ranks(rule, &t, &ranks)) {
		char what[128];
		snprintf(what, sizeof(what), "cannot start the rule's processes: %s",
			 strerror(errno));
		fail(result, what, "");
	} else {
		await_ranks(rule, t.report, &ranks, limit_s, result);
	}
	stop_ranks(&ranks);
	if (t.report != MAP_FAILED)
		munmap(t.report, sizeof(*t.report));
	result->seconds = (double)(check_now_ns() - start) / 1e9;
}
