/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-agent/rules.h"

#include "base/cidr.h"
#include "nccl_ha/mpib_agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool na_rules_find(const struct na_rules *rules, uint32_t src_ip, uint32_t dst_ip, uint32_t *share)
{
	for (unsigned i = 0; i < rules->n; i++) {
		const struct na_rule *rule = &rules->rule[i];

		if ((src_ip & rule->src_mask) == rule->src_ip &&
		    (dst_ip & rule->dst_mask) == rule->dst_ip) {
			*share = rule->share;
			return true;
		}
	}
	return false;
}

void na_rules_clear(struct na_rules *rules, uint32_t src_ip, uint32_t dst_ip)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < rules->n; i++)
		if (rules->rule[i].src_ip != src_ip || rules->rule[i].dst_ip != dst_ip)
			rules->rule[kept++] = rules->rule[i];
	rules->n = kept;
}

static bool add(struct na_rules *rules, struct na_rule rule)
{
	if (rules->n == NA_RULES_MAX)
		return false;
	rules->rule[rules->n++] = rule;
	return true;
}

bool na_rules_set(struct na_rules *rules, uint32_t src_ip, uint32_t dst_ip, uint32_t share)
{
	na_rules_clear(rules, src_ip, dst_ip);
	return add(rules, (struct na_rule){src_ip, UINT32_MAX, dst_ip, UINT32_MAX, share});
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Digits and nothing else, up to most. */
static bool parse_number(const char *text, unsigned long most, unsigned long *number)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	*number = strtoul(text, &end, 10);
	return *end == '\0' && *number <= most;
}

bool na_parse_share(const char *text, uint32_t *share)
{
	unsigned long number;

	if (!parse_number(text, MPIB_HINT_ALL, &number))
		return false;
	*share = (uint32_t)number;
	return true;
}

bool na_parse_cidr(const char *text, uint32_t *ip, uint32_t *mask)
{
	struct ha_cidr range;

	if (!ha_cidr_parse(text, &range) || range.family != AF_INET)
		return false;
	memcpy(ip, range.addr, sizeof(*ip));
	*mask = htonl(range.prefix_len ? UINT32_MAX << (32 - range.prefix_len) : 0);
	*ip &= *mask;
	return true;
}

/* NULL: it was a rule, or none. */
static const char *parse_line(struct na_rules *rules, char *line)
{
	struct na_rule rule;
	char *words[4], *save = NULL;
	unsigned n = 0;

	line[strcspn(line, "#\n")] = '\0';
	for (char *word = strtok_r(line, " \t\r", &save); word && n < 4;
	     word = strtok_r(NULL, " \t\r", &save))
		words[n++] = word;
	if (n == 0)
		return NULL;
	if (n != 3)
		return "a rule is CIDR CIDR SHARE";
	if (!na_parse_cidr(words[0], &rule.src_ip, &rule.src_mask) ||
	    !na_parse_cidr(words[1], &rule.dst_ip, &rule.dst_mask))
		return "addresses are as 10.1.0.0/16 or 10.1.0.1";
	if (!na_parse_share(words[2], &rule.share))
		return "a share is 0 to 1024";
	return add(rules, rule) ? NULL : "there are too many rules";
}

bool na_rules_read(struct na_rules *rules, const char *path, char *err, size_t err_len)
{
	FILE *file = fopen(path, "re");
	const char *why = NULL;
	char *line = NULL;
	size_t size = 0;
	unsigned number = 0;

	if (!file) {
		snprintf(err, err_len, "%s: %s", path, strerror(errno));
		return false;
	}
	while (!why && getline(&line, &size, file) >= 0) {
		number++;
		why = parse_line(rules, line);
	}
	free(line);
	fclose(file);
	if (why)
		snprintf(err, err_len, "%s, line %u: %s", path, number, why);
	return !why;
}
