/* SPDX-License-Identifier: Apache-2.0 */
/* Fault rules: the table, matching and counting. The language is in fault_parse.c. */
#include "fault.h"

#include "fault_parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(kind) (1u << (kind))

/* ---------------------------------------------------------------- the table */

void sv_fault_table_init(struct sv_fault_table *table, uint64_t seed)
{
	memset(table, 0, sizeof(*table));
	table->seed = seed;
}

static void update_points(struct sv_fault_table *table)
{
	uint32_t n = atomic_load_explicit(&table->nrules, memory_order_relaxed);
	uint32_t points = 0;

	for (uint32_t i = 0; i < n; i++)
		if (atomic_load_explicit(&table->rules[i].active, memory_order_relaxed))
			points |= table->rules[i].point;
	/* Pairs with sv_fault_armed(): who sees a point sees the rules behind it. */
	atomic_store_explicit(&table->points, points, memory_order_release);
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* The rule becomes visible whole: `active` is stored last. */
static void install(struct sv_fault_table *table, uint32_t id, const struct sv_fault_rule *rule)
{
	struct sv_fault_rule *slot = &table->rules[id];
	uint64_t seed = rule->seed ? rule->seed : table->seed + id + 1;

	memcpy(slot, rule, sizeof(*slot));
	if (rule->at_ns || rule->point & SV_POINT_TIME)
		slot->at_ns += table->origin_ns;
	if (rule->until_ns != UINT64_MAX)
		slot->until_ns += table->origin_ns;
	/* Mixed: or the rules' numbers would be one sequence, each one step further on. */
	atomic_store_explicit(&slot->rng, mix(seed), memory_order_relaxed);
	atomic_store_explicit(&slot->its_qpn, SV_ANY, memory_order_relaxed);
	atomic_store_explicit(&slot->matched, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->fired, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->active, 1, memory_order_release);
}

static char *read_file(const char *path, char *err, size_t err_size)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (!file) {
		snprintf(err, err_size, "cannot read fault rules from '%s': %s", path,
			 strerror(errno));
		return NULL;
	}
	if (getdelim(&text, &size, '\0', file) < 0) {
		free(text);
		text = strdup("");
	}
	fclose(file);
	return text;
}

static int add_lines(struct sv_fault_table *table, char *text, char *err, size_t err_size)
{
	uint32_t first = atomic_load_explicit(&table->nrules, memory_order_relaxed);
	uint32_t n = first;
	char *save = NULL;

	/* Parsed into the free slots first, so that a bad line leaves nothing behind. */
	for (char *line = strtok_r(text, "\n;", &save); line; line = strtok_r(NULL, "\n;", &save)) {
		struct sv_fault_rule rule;
		char *comment = strchr(line, '#');

		if (comment)
			*comment = '\0';
		if (!line[strspn(line, " \t\r,")])
			continue;
		if (n >= SV_FAULT_MAX_RULES) {
			snprintf(err, err_size, "more than %d fault rules: remove some first",
				 SV_FAULT_MAX_RULES);
			return -ENOSPC;
		}
		if (sv_fault_parse(line, &rule, err, err_size))
			return -EINVAL;
		memcpy(&table->rules[n++], &rule, sizeof(rule));
	}
	if (n == first) {
		snprintf(err, err_size, "no fault rule given");
		return -EINVAL;
	}
	for (uint32_t i = first; i < n; i++) {
		struct sv_fault_rule rule = table->rules[i];

		install(table, i, &rule);
	}
	atomic_store_explicit(&table->nrules, n, memory_order_release);
	update_points(table);
	return (int)first;
}

int sv_fault_add_text(struct sv_fault_table *table, const char *text, char *err, size_t err_size)
{
	char *copy = text[0] == '@' ? read_file(text + 1, err, err_size) : strdup(text);
	int ret;

	if (!copy)
		return -(errno ? errno : ENOMEM);
	ret = add_lines(table, copy, err, err_size);
	free(copy);
	return ret;
}

int sv_fault_remove(struct sv_fault_table *table, int id)
{
	uint32_t n = atomic_load_explicit(&table->nrules, memory_order_relaxed);

	if (id >= 0 && (uint32_t)id >= n)
		return -ENOENT;
	for (uint32_t i = 0; i < n; i++)
		if (id < 0 || (uint32_t)id == i)
			atomic_store_explicit(&table->rules[i].active, 0, memory_order_release);
	if (id < 0)
		atomic_store_explicit(&table->nrules, 0, memory_order_release);
	update_points(table);
	return 0;
}

/* ---------------------------------------------------------------- legs */

uint32_t sv_fault_legs(uint32_t legs, uint32_t kind, uint32_t leg)
{
	switch (kind) {
	case SV_FAULT_LEG_DOWN:
		return (legs | SV_LEG_DEAD(leg)) & ~SV_LEG_REMAPPED(leg);
	case SV_FAULT_LEG_REMAP:
		return legs | SV_LEG_REMAPPED(leg);
	case SV_FAULT_LEG_UP:
		return legs & ~(SV_LEG_DEAD(leg) | SV_LEG_REMAPPED(leg));
	default:
		return legs;
	}
}

/* ---------------------------------------------------------------- when */

static uint64_t next_random(struct sv_fault_rule *rule)
{
	/* splitmix64: a counter, so several processes can draw from it without a lock. */
	return mix(
	    atomic_fetch_add_explicit(&rule->rng, 0x9e3779b97f4a7c15ull, memory_order_relaxed));
}

/* Takes one of the `count` firings. */
static bool take_firing(struct sv_fault_rule *rule)
{
	uint64_t fired = atomic_load_explicit(&rule->fired, memory_order_relaxed);

	do {
		if (fired >= rule->count)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
	    &rule->fired, &fired, fired + 1, memory_order_relaxed, memory_order_relaxed));
	return true;
}

/* Of a rule about one queue pair: is it that one, or the first that could be? */
static bool is_its_qp(struct sv_fault_rule *rule, uint32_t qpn)
{
	uint32_t its = SV_ANY;

	return !rule->one_qp || qpn == SV_ANY ||
	       atomic_compare_exchange_strong_explicit(
		   &rule->its_qpn, &its, qpn, memory_order_relaxed, memory_order_relaxed) ||
	       its == qpn;
}

/* Everything but the time fits: does it fire? qpn is SV_ANY where no queue pair has part in it. */
static bool fires(struct sv_fault_rule *rule, uint32_t qpn, uint64_t now_ns)
{
	uint64_t n;

	if (now_ns < rule->at_ns || now_ns >= rule->until_ns || !is_its_qp(rule, qpn))
		return false;
	n = atomic_fetch_add_explicit(&rule->matched, 1, memory_order_relaxed) + 1;
	if (n < rule->nth)
		return false;
	if (rule->every && (rule->nth ? n - rule->nth : n) % rule->every)
		return false;
	if (rule->prob_q32 && (next_random(rule) >> 32) >= rule->prob_q32)
		return false;
	return take_firing(rule);
}

/* ---------------------------------------------------------------- what and where */

static bool fits(uint32_t want, uint32_t is)
{
	return want == SV_ANY || want == is;
}

static bool place_fits(const struct sv_fault_rule *rule, const struct sv_fault_where *where)
{
	return fits(rule->host, where->host) && fits(rule->rail, where->rail) &&
	       fits(rule->phys, where->phys) && fits(rule->peer, where->peer);
}

static bool op_fits(const struct sv_fault_rule *rule, const struct sv_packet *pkt)
{
	uint32_t kind;

	if (!(rule->ops & 1u << pkt->op))
		return false;
	if (pkt->op != SV_OP_ACK)
		return true;
	switch (pkt->syndrome & SV_AETH_KIND_MASK) {
	case SV_AETH_ACK:
		kind = SV_ACK_POSITIVE;
		break;
	case SV_AETH_RNR_NAK:
		kind = SV_ACK_RNR;
		break;
	default:
		kind = SV_ACK_NAK;
	}
	return rule->ack_kinds & kind;
}

static bool part_fits(const struct sv_fault_rule *rule, const struct sv_packet *pkt)
{
	uint32_t part = pkt->flags & (SV_PKT_FIRST | SV_PKT_LAST);

	return !rule->parts || rule->parts & (part ? part : SV_PART_MIDDLE);
}

/* That of a bond's action is not the packet's. */
static bool leg_fits(const struct sv_fault_rule *rule, const struct sv_packet *pkt)
{
	return sv_fault_is_of_bond(rule->kind) || fits(rule->leg, sv_leg_of(pkt->sport));
}

static uint32_t qpn_of(const struct sv_packet *pkt, enum sv_fault_dir dir)
{
	return dir == SV_DIR_TX ? pkt->src_qpn : pkt->dst_qpn;
}

static bool packet_fits(const struct sv_fault_rule *rule, enum sv_fault_dir dir,
			const struct sv_fault_where *where, const struct sv_packet *pkt)
{
	return place_fits(rule, where) && op_fits(rule, pkt) && part_fits(rule, pkt) &&
	       fits(rule->qpn, qpn_of(pkt, dir)) && leg_fits(rule, pkt) &&
	       pkt->payload_len >= rule->min_len && pkt->payload_len <= rule->max_len;
}

/* -ln of a number in (0, 1]: the library is to need no libm. By halving, and a series for the rest.
 */
static double minus_ln(double x)
{
	double ln = 0, y, term, sum = 0;

	while (x < 0.5) {
		x *= 2;
		ln += 0.69314718055994530942;
	}
	/* ln x = 2 artanh((x - 1) / (x + 1)), and y is at most a third. */
	y = (1 - x) / (1 + x);
	term = y;
	for (int k = 1; k < 24; k += 2) {
		sum += term / k;
		term *= y * y;
	}
	return ln + 2 * sum;
}

static uint64_t random_time(struct sv_fault_rule *rule)
{
	double part;

	if (!rule->jitter_ns)
		return 0;
	part = (double)((next_random(rule) >> 12) + 1) / 4503599627370496.0; /* 2^-52 to 1 */
	if (rule->dist == SV_DIST_EXP)
		part = minus_ln(part);
	return (uint64_t)(part * (double)rule->jitter_ns);
}

static void merge(struct sv_fault_verdict *verdict, struct sv_fault_rule *rule,
		  const struct sv_fault_where *where)
{
	verdict->kinds |= 1u << rule->kind;
	switch (rule->kind) {
	case SV_FAULT_DUP:
		verdict->copies += (uint32_t)rule->amount;
		break;
	case SV_FAULT_DELAY:
		verdict->delay_ns += rule->amount + random_time(rule);
		verdict->in_order |= rule->jitter_ns != 0;
		break;
	case SV_FAULT_HOLD:
		if (rule->until_ns > verdict->hold_until_ns)
			verdict->hold_until_ns = rule->until_ns;
		break;
	case SV_FAULT_REORDER:
		verdict->overtake += (uint32_t)rule->amount;
		break;
	case SV_FAULT_SLOW:
		verdict->slow_milli = (uint32_t)rule->amount;
		break;
	case SV_FAULT_KILL:
		verdict->kill = rule->value;
		break;
	case SV_FAULT_REVIVE:
		verdict->renamed = rule->value != 0;
		break;
	case SV_FAULT_DISASSOCIATE:
	case SV_FAULT_FEIGN:
		verdict->leave_ns = rule->amount;
		break;
	case SV_FAULT_EVENT:
		verdict->event = rule->value;
		break;
	case SV_FAULT_WEDGE:
		verdict->wedge_hard = rule->value != 0;
		break;
	case SV_FAULT_ERR:
		verdict->err_silent = rule->value != 0;
		break;
	default:
		break;
	}
	if (rule->kind >= SV_FAULT_EVENT) {
		verdict->for_ns = rule->for_ns;
		verdict->leg = rule->leg;
		verdict->host = where->host;
		verdict->rail = where->rail;
		verdict->phys = where->phys;
	}
}

/* ---------------------------------------------------------------- matching */

static struct sv_fault_rule *active_rule(struct sv_fault_table *table, uint32_t id, uint32_t point)
{
	struct sv_fault_rule *rule = &table->rules[id];

	if (!atomic_load_explicit(&rule->active, memory_order_acquire) || rule->point != point)
		return NULL;
	return rule;
}

static uint32_t num_rules(const struct sv_fault_table *table)
{
	return atomic_load_explicit(&table->nrules, memory_order_acquire);
}

bool sv_fault_packet(struct sv_fault_table *table, enum sv_fault_dir dir,
		     const struct sv_fault_where *where, const struct sv_packet *pkt,
		     uint64_t now_ns, struct sv_fault_verdict *verdict)
{
	uint32_t point = dir == SV_DIR_TX ? SV_POINT_TX : SV_POINT_RX;
	uint32_t n = num_rules(table);

	*verdict = (struct sv_fault_verdict){0};
	for (uint32_t i = 0; i < n; i++) {
		struct sv_fault_rule *rule = active_rule(table, i, point);

		if (rule && packet_fits(rule, dir, where, pkt) &&
		    fires(rule, qpn_of(pkt, dir), now_ns))
			merge(verdict, rule, where);
	}
	return verdict->kinds != 0;
}

static uint64_t due_at(const struct sv_fault_rule *rule)
{
	uint64_t fired = atomic_load_explicit(&rule->fired, memory_order_relaxed);

	return fired < rule->count ? rule->at_ns + fired * rule->period_ns : UINT64_MAX;
}

uint32_t sv_fault_inverse(uint32_t kinds)
{
	return (kinds & (BIT(SV_FAULT_LINK_DOWN) | BIT(SV_FAULT_LINK_OFF)) ? BIT(SV_FAULT_LINK_UP)
									   : 0) |
	       (kinds & BIT(SV_FAULT_LINK_UP) ? BIT(SV_FAULT_LINK_DOWN) : 0) |
	       (kinds & BIT(SV_FAULT_LEG_DOWN) ? BIT(SV_FAULT_LEG_UP) : 0) |
	       (kinds & (BIT(SV_FAULT_LEG_UP) | BIT(SV_FAULT_LEG_REMAP)) ? BIT(SV_FAULT_LEG_DOWN)
									 : 0) |
	       (kinds & BIT(SV_FAULT_CUT) ? BIT(SV_FAULT_HEAL) : 0) |
	       (kinds & BIT(SV_FAULT_HEAL) ? BIT(SV_FAULT_CUT) : 0) |
	       (kinds & (BIT(SV_FAULT_KILL) | BIT(SV_FAULT_DISASSOCIATE) | BIT(SV_FAULT_FEIGN))
		    ? BIT(SV_FAULT_REVIVE)
		    : 0) |
	       (kinds & BIT(SV_FAULT_REVIVE) ? BIT(SV_FAULT_KILL) : 0);
}

bool sv_fault_due(struct sv_fault_table *table, uint64_t now_ns, struct sv_fault_verdict *verdict)
{
	uint32_t n = num_rules(table);

	*verdict = (struct sv_fault_verdict){0};
	for (uint32_t i = 0; i < n; i++) {
		struct sv_fault_rule *rule = active_rule(table, i, SV_POINT_TIME);

		if (!rule || due_at(rule) > now_ns || !take_firing(rule))
			continue;
		atomic_fetch_add_explicit(&rule->matched, 1, memory_order_relaxed);
		merge(verdict, rule,
		      &(struct sv_fault_where){
			  .host = rule->host, .rail = rule->rail, .phys = rule->phys});
		return true;
	}
	return false;
}

uint64_t sv_fault_next_due(const struct sv_fault_table *table)
{
	uint64_t next = UINT64_MAX;
	uint32_t n = num_rules(table);

	for (uint32_t i = 0; i < n; i++) {
		const struct sv_fault_rule *rule = &table->rules[i];

		if (atomic_load_explicit(&rule->active, memory_order_acquire) &&
		    rule->point == SV_POINT_TIME && due_at(rule) < next)
			next = due_at(rule);
	}
	return next;
}

static struct sv_fault_rule *verb_rule(struct sv_fault_table *table, enum sv_fault_kind kind,
				       enum sv_verb verb, uint32_t host, uint32_t rail,
				       uint64_t now_ns)
{
	uint32_t n = num_rules(table);

	for (uint32_t i = 0; i < n; i++) {
		struct sv_fault_rule *rule = active_rule(table, i, SV_POINT_VERB);

		if (rule && rule->kind == kind && rule->verb == verb && fits(rule->host, host) &&
		    fits(rule->rail, rail) && fires(rule, SV_ANY, now_ns))
			return rule;
	}
	return NULL;
}

uint64_t sv_fault_verb_wait_ns(struct sv_fault_table *table, enum sv_verb verb, uint32_t host,
			       uint32_t rail, uint64_t now_ns)
{
	const struct sv_fault_rule *rule =
	    verb_rule(table, SV_FAULT_WAIT, verb, host, rail, now_ns);

	return rule ? rule->amount : 0;
}

int sv_fault_verb(struct sv_fault_table *table, enum sv_verb verb, uint32_t host, uint32_t rail,
		  uint64_t now_ns)
{
	const struct sv_fault_rule *rule =
	    verb_rule(table, SV_FAULT_ERRNO, verb, host, rail, now_ns);

	return rule ? rule->value : 0;
}

bool sv_fault_late(struct sv_fault_table *table, enum sv_fault_point point,
		   const struct sv_fault_where *where, const struct sv_packet *pkt, uint64_t now_ns,
		   uint64_t *late_ns)
{
	uint32_t n = num_rules(table);

	for (uint32_t i = 0; i < n; i++) {
		struct sv_fault_rule *rule = active_rule(table, i, point);

		if (rule && packet_fits(rule, SV_DIR_RX, where, pkt) &&
		    fires(rule, qpn_of(pkt, SV_DIR_RX), now_ns)) {
			*late_ns = next_random(rule) % (rule->amount + 1);
			return true;
		}
	}
	return false;
}

uint32_t sv_fault_wr(struct sv_fault_table *table, const struct sv_fault_where *where, uint32_t qpn,
		     uint32_t op, uint32_t length, bool sent, uint64_t now_ns)
{
	uint32_t n = num_rules(table);

	for (uint32_t i = 0; i < n; i++) {
		struct sv_fault_rule *rule = active_rule(table, i, SV_POINT_WR);

		if (rule && sent == !rule->unsent && place_fits(rule, where) &&
		    fits(rule->qpn, qpn) && rule->ops & 1u << op && length >= rule->min_len &&
		    length <= rule->max_len && fires(rule, qpn, now_ns))
			return (uint32_t)rule->value;
	}
	return 0;
}

enum sv_reach sv_fault_memory(struct sv_fault_table *table, const struct sv_fault_where *where,
			      uint64_t now_ns)
{
	uint32_t n = num_rules(table);

	for (uint32_t i = 0; i < n; i++) {
		struct sv_fault_rule *rule = active_rule(table, i, SV_POINT_MEMORY);

		if (rule && place_fits(rule, where) && fires(rule, SV_ANY, now_ns))
			return (enum sv_reach)rule->value;
	}
	return SV_REACHED;
}
