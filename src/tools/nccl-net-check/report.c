/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static const char *outcome_name(enum check_outcome outcome)
{
	static const char *const names[] = {[CHECK_NONE] = "NONE",
					    [CHECK_PASS] = "PASS",
					    [CHECK_FAIL] = "FAIL",
					    [CHECK_SKIP] = "SKIP"};
	return names[outcome];
}

bool rule_applies(const struct rule *rule, int api)
{
	return api >= rule->since && (!rule->until || api <= rule->until);
}

/* ---- lines -------------------------------------------------------------------------------- */

void report_line(const struct check_result *r)
{
	printf("%s  v%-2d  %-20s %6.2f s", outcome_name(r->outcome), r->api, r->rule->name,
	       r->seconds);
	if (r->text[0])
		printf("  %s", r->text);
	putchar('\n');
	if (r->outcome == CHECK_FAIL)
		printf("           contract: %s\n           NCCL:     %s\n", r->rule->meaning,
		       r->rule->otherwise);
	fflush(stdout);
}

int report_summary(const struct check_result *results, size_t count)
{
	int of[4] = {0};

	for (size_t i = 0; i < count; i++)
		of[results[i].outcome]++;
	printf("%d passed, %d failed, %d skipped\n", of[CHECK_PASS], of[CHECK_FAIL],
	       of[CHECK_SKIP]);
	return of[CHECK_FAIL];
}

void report_list(const struct rule_set *set)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct rule *r = &set->rules[i];
		printf("%-20s %s", r->name, r->meaning);
		if (r->since > NP_API_OLDEST)
			printf(" (v%d and later)", r->since);
		putchar('\n');
	}
}

/* ---- JSON --------------------------------------------------------------------------------- */

bool report_json(const char *path, const char *plugin, const char *name,
		 const struct check_result *results, size_t count)
{
	json_t *list = json_array();
	int failed = 0;

	for (size_t i = 0; i < count; i++) {
		const struct check_result *r = &results[i];
		failed += r->outcome == CHECK_FAIL;
		json_array_append_new(
		    list, json_pack("{s:s, s:i, s:s, s:f, s:s, s:s, s:s}", "rule", r->rule->name,
				    "api", r->api, "outcome", outcome_name(r->outcome), "seconds",
				    r->seconds, "seen", r->text, "contract", r->rule->meaning,
				    "otherwise", r->rule->otherwise));
	}
	json_t *root = json_pack("{s:s, s:s, s:i, s:o}", "plugin", plugin, "name", name, "failed",
				 failed, "results", list);
	bool ok = root && json_dump_file(root, path, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0;
	if (!ok)
		fprintf(stderr, "nccl-net-check: cannot write %s: %s\n", path,
			errno ? strerror(errno) : "a text is not UTF-8");
	json_decref(root);
	return ok;
}

/* ---- Markdown ----------------------------------------------------------------------------- */

static void table_of(FILE *out, const struct rule_set *set)
{
	fputs("| rule | API | run in | the contract | what NCCL does otherwise |\n"
	      "|---|---|---|---|---|\n",
	      out);
	for (size_t i = 0; i < set->count; i++) {
		const struct rule *r = &set->rules[i];
		char versions[16] = "all";
		if (r->since > NP_API_OLDEST)
			snprintf(versions, sizeof(versions), "v%d+", r->since);
		fprintf(out, "| `%s` | %s | %s | %s | %s |\n", r->name, versions,
			r->kind == RULE_PAIR ? "two" : "one", r->meaning, r->otherwise);
	}
}

void report_markdown(FILE *out)
{
	fputs("# The NCCL net plugin contract\n\n"
	      "What NCCL relies on in a network plugin, and what becomes of a job when a plugin "
	      "does\notherwise. Each rule is checked by `nccl-net-check` (see its man page); this "
	      "page is printed\nby `nccl-net-check --markdown` from the table that drives it.\n\n"
	      "How a rule is run: *one* process that holds both ends of its connections, or *two* "
	      "processes,\na sender and a receiver. Each rule has its own processes and a time "
	      "limit, so that a crash or\na hang is a finding like any other.\n\n",
	      out);
	table_of(out, &check_net_rules);
	fputs(
	    "\n## The collNet\n\n"
	    "What NCCL relies on in a plugin's collNet (all-reduces that the network does itself), "
	    "as\n`nccl-net-check --collnet` checks it. The two processes are ranks of one "
	    "group.\n\n",
	    out);
	table_of(out, &check_coll_rules);
}
