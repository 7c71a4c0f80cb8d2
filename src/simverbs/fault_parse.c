/* SPDX-License-Identifier: Apache-2.0 */
/* The language of fault rules (described in fault.h). An error message names the offending token.
 */
#include "fault_parse.h"

#include "fault.h"
#include "fault_names.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is being parsed, and what was seen of it. */
struct parser {
	const char *text;
	char *err;
	size_t err_size;
	struct sv_fault_rule *rule;
	bool has_dir, has_count, has_packet_key, has_at, has_dist;
	uint64_t within_ns;	 /* 0: not said */
	const char *packet_word; /* a condition that only a packet can fulfil */
};

static int fail(const struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int fail(const struct parser *p, const char *fmt, ...)
{
	int n = snprintf(p->err, p->err_size, "fault rule '%s': ", p->text);
	va_list args;

	if (n < 0 || (size_t)n >= p->err_size)
		return EINVAL;
	va_start(args, fmt);
	vsnprintf(p->err + n, p->err_size - (size_t)n, fmt, args);
	va_end(args);
	return EINVAL;
}

/* ---------------------------------------------------------------- values */

static bool to_number(const char *s, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(s, &end, 0);
	return *s >= '0' && *s <= '9' && !*end && !errno;
}

bool sv_time_parse(const char *s, uint64_t *out)
{
	static const struct {
		const char *suffix;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	char *end;
	double value;

	if (!((*s >= '0' && *s <= '9') || *s == '.'))
		return false;
	value = strtod(s, &end);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (!strcmp(end, units[i].suffix) && value * units[i].ns < 9e18) {
			*out = (uint64_t)(value * units[i].ns + 0.5);
			return true;
		}
	}
	return false;
}

/* Index in a table of names; -1. NULL entries are holes. */
static int to_index(const char *s, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (names[i] && !strcmp(s, names[i]))
			return (int)i;
	return -1;
}

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* ---------------------------------------------------------------- actions */

static int set_kind(const struct parser *p, enum sv_fault_kind kind)
{
	if (p->rule->kind != SV_FAULT_NONE)
		return fail(p, "more than one action; one rule a line");
	p->rule->kind = kind;
	return 0;
}

static int number_arg(const struct parser *p, const char *key, const char *value, uint64_t def)
{
	if (!value)
		p->rule->amount = def;
	else if (!to_number(value, &p->rule->amount) || !p->rule->amount)
		return fail(p, "'%s=%s': expected a number above 0", key, value);
	return 0;
}

static int act_plain(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	if (value)
		return fail(p, "'%s' takes no value, but has '%s'", key, value);
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_dropack(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	p->rule->ops = 1u << SV_OP_ACK;
	p->rule->ack_kinds = SV_ACK_POSITIVE;
	p->has_packet_key = true;
	return act_plain(p, key, value, kind);
}

static int act_number(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	int ret = number_arg(p, key, value, 1);

	return ret ? ret : set_kind(p, (enum sv_fault_kind)kind);
}

static int act_time(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	if (!value || !sv_time_parse(value, &p->rule->amount))
		return fail(p, "'%s=%s': expected a time such as 20ms", key, value ? value : "");
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_wait(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	int ret = act_time(p, key, value, kind);

	if (!ret && !p->rule->amount)
		ret = fail(p, "'%s=%s': expected a time above 0", key, value);
	return ret;
}

static int act_leave(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	p->rule->amount = SV_LEAVE_NS;
	return value ? act_time(p, key, value, kind) : set_kind(p, (enum sv_fault_kind)kind);
}

/* What is spread over this time is a few packets at the rates of today's ports. */
#define LATE_NS 10000

static int act_unordered(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	if (value)
		return act_wait(p, key, value, kind);
	p->rule->amount = LATE_NS;
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_gpu(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	if (!value || strcmp(value, "reorder") != 0)
		return fail(p, "'%s=%s': expected %s=reorder", key, value ? value : "", key);
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_slow(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	char *end = NULL;
	double factor = value ? strtod(value, &end) : 0;

	if (!value || *end || !(factor >= 1 && factor <= 1e6))
		return fail(p, "'%s=%s': expected a factor from 1 to 1000000", key,
			    value ? value : "");
	p->rule->amount = (uint64_t)(factor * 1000);
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_errno(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	uint64_t number;

	if (value && to_number(value, &number) && number && number < 4096) {
		p->rule->value = (int32_t)number;
		return set_kind(p, (enum sv_fault_kind)kind);
	}
	for (int err = 1; value && err < 256; err++) {
		const char *name = strerrorname_np(err);

		if (name && !strcmp(name, value)) {
			p->rule->value = err;
			return set_kind(p, (enum sv_fault_kind)kind);
		}
	}
	return fail(p, "'%s=%s': expected an error name such as ENOMEM", key, value ? value : "");
}

static int act_wc(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	p->rule->value = value ? sv_wc_by_name(value) : -1;
	if (p->rule->value < 0)
		return fail(p, "'%s=%s': expected a completion status such as RETRY_EXC_ERR", key,
			    value ? value : "");
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_event(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	p->rule->value = value ? sv_event_by_name(value) : -1;
	if (p->rule->value < 0)
		return fail(p, "'%s=%s': expected a port or device event such as PORT_ERR", key,
			    value ? value : "");
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_wedge(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	if (value && strcmp(value, "hard") != 0)
		return fail(p, "'%s=%s': expected %s or %s=hard", key, value, key, key);
	p->rule->value = value != NULL;
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_err(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	if (value && strcmp(value, "silent") != 0)
		return fail(p, "'%s=%s': expected %s or %s=silent", key, value, key, key);
	p->rule->value = value != NULL;
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_unreachable(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	if (value && strcmp(value, "silent") != 0)
		return fail(p, "'%s=%s': expected %s or %s=silent", key, value, key, key);
	p->rule->value = value ? SV_REACH_SILENT : SV_REACH_ERROR;
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_link(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	(void)kind;
	if (value && !strcmp(value, "down"))
		return set_kind(p, SV_FAULT_LINK_DOWN);
	if (value && !strcmp(value, "off"))
		return set_kind(p, SV_FAULT_LINK_OFF);
	if (value && !strcmp(value, "up"))
		return set_kind(p, SV_FAULT_LINK_UP);
	return fail(p, "'%s=%s': expected down, off or up", key, value ? value : "");
}

static int act_bond(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	static const char *const words[] = {"down", "remap", "up"};
	int word = value ? to_index(value, words, COUNT_OF(words)) : -1;

	(void)kind;
	if (word < 0)
		return fail(p, "'%s=%s': expected down, remap or up", key, value ? value : "");
	return set_kind(p, (enum sv_fault_kind)(SV_FAULT_LEG_DOWN + word));
}

static int act_revive(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	if (value && strcmp(value, "renamed") != 0)
		return fail(p, "'%s=%s': expected renamed, or no value", key, value);
	p->rule->value = value != NULL;
	return set_kind(p, (enum sv_fault_kind)kind);
}

static int act_kill(struct parser *p, const char *key, const char *value, uint32_t kind)
{
	static const char *const variants[] = {
	    [SV_KILL_NOW] = "now", [SV_KILL_PLACED] = "placed", [SV_KILL_UNPLACED] = "unplaced"};

	p->rule->value = value ? to_index(value, variants, COUNT_OF(variants)) : SV_KILL_NOW;
	if (p->rule->value < 0)
		return fail(p, "'%s=%s': expected now, placed or unplaced", key, value);
	return set_kind(p, (enum sv_fault_kind)kind);
}

/* ---------------------------------------------------------------- keys */

static int key_number(struct parser *p, const char *key, const char *value, uint64_t max,
		      uint64_t *out)
{
	if (!value || !to_number(value, out) || *out > max)
		return fail(p, "'%s=%s': expected a number%s", key, value ? value : "",
			    max < UINT64_MAX ? " in range" : "");
	return 0;
}

static int key_u32(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	uint64_t number = 0;
	int ret = key_number(p, key, value, UINT32_MAX - 1, &number);

	if (!ret)
		*(uint32_t *)(void *)((char *)p->rule + offset) = (uint32_t)number;
	return ret;
}

/* A number that is about packets, which rules out a purely timed action. */
static int key_packet_u32(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	p->has_packet_key = true;
	p->packet_word = key;
	return key_u32(p, key, value, offset);
}

/* A number, or the first that comes. */
static int key_qpn(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	if (!value || strcmp(value, "first") != 0)
		return key_packet_u32(p, key, value, offset);
	p->has_packet_key = true;
	p->packet_word = key;
	p->rule->one_qp = true;
	return 0;
}

/* A condition about packets, unless the action is a bond's. */
static int key_leg(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	(void)offset;
	if (!value || (strcmp(value, "0") != 0 && strcmp(value, "1") != 0))
		return fail(p, "'%s=%s': expected 0 or 1", key, value ? value : "");
	p->rule->leg = value[0] == '1';
	return 0;
}

/* Ports count from 1, as in verbs. */
static int key_port(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	uint64_t number = 0;
	int ret = key_number(p, key, value, SV_MAX_PHYS, &number);

	(void)offset;
	if (!ret && !number)
		ret = fail(p, "'%s=%s': a device's ports count from 1", key, value);
	p->rule->phys = (uint32_t)number - 1;
	return ret;
}

static int key_nth(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	uint64_t *out = (uint64_t *)(void *)((char *)p->rule + offset);
	int ret = key_number(p, key, value, UINT64_MAX, out);

	p->has_packet_key = true;
	if (!ret && !*out)
		ret = fail(p, "'%s=%s': counting begins with 1", key, value);
	return ret;
}

static int key_count(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	(void)offset;
	p->has_count = true;
	return key_number(p, key, value, UINT64_MAX, &p->rule->count);
}

static int key_seed(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	(void)offset;
	return key_number(p, key, value, UINT64_MAX, &p->rule->seed);
}

static int key_time(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	if (!value || !sv_time_parse(value, (uint64_t *)(void *)((char *)p->rule + offset)))
		return fail(p, "'%s=%s': expected a time such as 20ms", key, value ? value : "");
	if (offset == offsetof(struct sv_fault_rule, at_ns))
		p->has_at = true;
	return 0;
}

static int key_within(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	(void)offset;
	if (!value || !sv_time_parse(value, &p->within_ns) || !p->within_ns)
		return fail(p, "'%s=%s': expected a time above 0, such as 20ms", key,
			    value ? value : "");
	return 0;
}

static int key_dist(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	static const char *const dists[] = {[SV_DIST_UNIFORM] = "uniform", [SV_DIST_EXP] = "exp"};
	int dist = value ? to_index(value, dists, COUNT_OF(dists)) : -1;

	(void)offset;
	if (dist < 0)
		return fail(p, "'%s=%s': expected uniform or exp", key, value ? value : "");
	p->rule->dist = (uint32_t)dist;
	p->has_dist = true;
	return 0;
}

static int key_prob(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	char *end = NULL;
	double prob = value ? strtod(value, &end) : 0;

	(void)offset;
	p->has_packet_key = true;
	if (!value || *end || !(prob > 0 && prob <= 1))
		return fail(p, "'%s=%s': expected a probability above 0, at most 1", key,
			    value ? value : "");
	p->rule->prob_q32 = (uint64_t)(prob * 4294967296.0);
	if (!p->rule->prob_q32)
		p->rule->prob_q32 = 1;
	return 0;
}

static int key_dir(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	(void)offset;
	p->has_dir = p->has_packet_key = true;
	if (value && !strcmp(value, "tx"))
		p->rule->point = SV_POINT_TX;
	else if (value && !strcmp(value, "rx"))
		p->rule->point = SV_POINT_RX;
	else
		return fail(p, "'%s=%s': expected tx or rx", key, value ? value : "");
	return 0;
}

static int key_part(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	(void)offset;
	p->has_packet_key = true;
	p->packet_word = key;
	if (value && !strcmp(value, "first"))
		p->rule->parts |= SV_PKT_FIRST;
	else if (value && !strcmp(value, "last"))
		p->rule->parts |= SV_PKT_LAST;
	else if (value && !strcmp(value, "middle"))
		p->rule->parts |= SV_PART_MIDDLE;
	else
		return fail(p, "'%s=%s': expected first, last or middle", key, value ? value : "");
	return 0;
}

static int key_verb(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	int verb = value ? sv_verb_by_name(value) : -1;

	(void)offset;
	if (verb < 0)
		return fail(p, "'%s=%s': expected a verb such as post_send", key,
			    value ? value : "");
	p->rule->verb = (uint32_t)verb;
	return 0;
}

static int key_sent(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	(void)offset;
	if (!value || (strcmp(value, "0") != 0 && strcmp(value, "1") != 0))
		return fail(p, "'%s=%s': expected 0 or 1", key, value ? value : "");
	p->rule->unsent = value[0] == '0';
	return 0;
}

static const struct {
	const char *name;
	uint32_t ops;
	uint32_t ack_kinds;
} op_names[] = {
    {"send", 1u << SV_OP_SEND, 0},
    {"write", 1u << SV_OP_WRITE, 0},
    {"read", 1u << SV_OP_READ_REQ, 0},
    {"readresp", 1u << SV_OP_READ_RESP, 0},
    {"atomic", 1u << SV_OP_CMP_SWAP | 1u << SV_OP_FETCH_ADD, 0},
    {"atomicack", 1u << SV_OP_ATOMIC_ACK, 0},
    {"ack", 1u << SV_OP_ACK, SV_ACK_POSITIVE},
    {"rnr", 1u << SV_OP_ACK, SV_ACK_RNR},
    {"nak", 1u << SV_OP_ACK, SV_ACK_NAK},
    {"ud", 1u << SV_OP_UD, 0},
    {"recv", 1u << SV_OP_RECV, 0},
    {"any", UINT32_MAX, SV_ACK_POSITIVE | SV_ACK_RNR | SV_ACK_NAK},
};

static int key_op(struct parser *p, const char *key, const char *value, uint32_t offset)
{
	char names[SV_FAULT_TEXT], *save = NULL;

	(void)offset;
	p->has_packet_key = true;
	p->packet_word = key;
	p->rule->ops = p->rule->ack_kinds = 0;
	snprintf(names, sizeof(names), "%s", value ? value : "");
	for (char *name = strtok_r(names, "|", &save); name; name = strtok_r(NULL, "|", &save)) {
		size_t i = 0;

		while (i < COUNT_OF(op_names) && strcmp(name, op_names[i].name) != 0)
			i++;
		if (i == COUNT_OF(op_names))
			return fail(p,
				    "'%s=%s': unknown operation '%s'; expected send, write, "
				    "read, readresp, atomic, atomicack, ack, nak, rnr, ud, recv "
				    "or any",
				    key, value, name);
		p->rule->ops |= op_names[i].ops;
		p->rule->ack_kinds |= op_names[i].ack_kinds;
	}
	return p->rule->ops ? 0 : fail(p, "'%s=': expected an operation", key);
}

#define FIELD(name) offsetof(struct sv_fault_rule, name)

static const struct token {
	const char *name;
	int (*parse)(struct parser *p, const char *key, const char *value, uint32_t arg);
	uint32_t arg; /* the kind, or where the value goes */
} tokens[] = {
    /* actions */
    {"drop", act_plain, SV_FAULT_DROP},
    {"corrupt", act_plain, SV_FAULT_CORRUPT},
    {"dropack", act_dropack, SV_FAULT_DROP},
    {"dup", act_number, SV_FAULT_DUP},
    {"delay", act_time, SV_FAULT_DELAY},
    {"reorder", act_number, SV_FAULT_REORDER},
    {"slow", act_slow, SV_FAULT_SLOW},
    {"hold", act_plain, SV_FAULT_HOLD},
    {"errno", act_errno, SV_FAULT_ERRNO},
    {"wait", act_wait, SV_FAULT_WAIT},
    {"wc", act_wc, SV_FAULT_WC},
    {"unordered", act_unordered, SV_FAULT_UNORDERED},
    {"gpu", act_gpu, SV_FAULT_GPU},
    {"unreachable", act_unreachable, SV_FAULT_UNREACHABLE},
    {"wedge", act_wedge, SV_FAULT_WEDGE},
    {"err", act_err, SV_FAULT_ERR},
    {"event", act_event, SV_FAULT_EVENT},
    {"link", act_link, 0},
    {"bond", act_bond, 0},
    {"cut", act_plain, SV_FAULT_CUT},
    {"heal", act_plain, SV_FAULT_HEAL},
    {"kill", act_kill, SV_FAULT_KILL},
    {"revive", act_revive, SV_FAULT_REVIVE},
    {"disassociate", act_leave, SV_FAULT_DISASSOCIATE},
    {"feign", act_leave, SV_FAULT_FEIGN},
    /* where, what, when */
    {"host", key_u32, FIELD(host)},
    {"rail", key_u32, FIELD(rail)},
    {"port", key_port, 0},
    {"peer", key_packet_u32, FIELD(peer)},
    {"qpn", key_qpn, FIELD(qpn)},
    {"minlen", key_packet_u32, FIELD(min_len)},
    {"maxlen", key_packet_u32, FIELD(max_len)},
    {"leg", key_leg, 0},
    {"dir", key_dir, 0},
    {"op", key_op, 0},
    {"part", key_part, 0},
    {"verb", key_verb, 0},
    {"sent", key_sent, 0},
    {"nth", key_nth, FIELD(nth)},
    {"every", key_nth, FIELD(every)},
    {"count", key_count, 0},
    {"within", key_within, 0},
    {"jitter", key_time, FIELD(jitter_ns)},
    {"dist", key_dist, 0},
    {"prob", key_prob, 0},
    {"seed", key_seed, 0},
    {"at", key_time, FIELD(at_ns)},
    {"until", key_time, FIELD(until_ns)},
    {"for", key_time, FIELD(for_ns)},
    {"period", key_time, FIELD(period_ns)},
};

/* ---------------------------------------------------------------- the whole rule */

static bool lasts(uint32_t kind)
{
	return kind >= SV_FAULT_WEDGE;
}

/* What only a rule about a verb can have wrong. */
static int check_verb(const struct parser *p)
{
	enum sv_verb verb = (enum sv_verb)p->rule->verb;

	if (p->has_dir || p->packet_word)
		return fail(p, "%s= only says something about packets, not about a verb",
			    p->has_dir ? "dir" : p->packet_word);
	if (p->rule->phys != SV_ANY)
		return fail(p, "port= says nothing about a verb: that is the device's");
	if (p->rule->kind == SV_FAULT_WAIT && !sv_verb_is_command(verb))
		return fail(p,
			    "'verb=%s': wait= needs a command to the kernel, such as modify_qp or "
			    "reg_mr; posting and polling never leave the process",
			    sv_verb_name(verb));
	if (p->rule->kind == SV_FAULT_ERRNO && verb == SV_VERB_CLOSE_DEVICE)
		return fail(p, "'verb=%s': closing does not fail; only wait= goes with it",
			    sv_verb_name(verb));
	return 0;
}

/* A leg is what a bond's action is about, and a condition about packets in any other rule. */
static int check_leg(struct parser *p)
{
	bool named = p->rule->leg != SV_ANY;

	if (sv_fault_is_of_bond(p->rule->kind))
		return named ? 0 : fail(p, "bond= needs leg=0 or leg=1");
	if (named && !p->packet_word)
		p->packet_word = "leg";
	p->has_packet_key |= named;
	return 0;
}

/* Where the rule is looked at, and what was left out. */
static int complete(struct parser *p)
{
	struct sv_fault_rule *rule = p->rule;
	int leg_err = check_leg(p); /* before it is asked what the rule is about */
	bool timed = rule->kind >= SV_FAULT_EVENT && p->has_at && !p->has_packet_key;
	bool of_verb = rule->kind == SV_FAULT_ERRNO || rule->kind == SV_FAULT_WAIT;

	if (leg_err)
		return leg_err;
	if (rule->kind == SV_FAULT_NONE)
		return fail(p, "no action; expected one of drop, corrupt, dropack, dup, delay, "
			       "reorder, slow, hold, errno, wait, wc, unordered, "
			       "gpu, unreachable, wedge, err, event, "
			       "link, bond, cut, heal, kill, revive, disassociate, feign");
	if (of_verb != (rule->verb != SV_VERB_NONE))
		return fail(p, "errno= and verb= go together, and so do wait= and verb=");
	if (of_verb && check_verb(p))
		return EINVAL;
	if (rule->one_qp && (rule->host == SV_ANY || rule->rail == SV_ANY))
		return fail(p,
			    "qpn=first needs host= and rail=: each device has numbers of its own");
	if (rule->jitter_ns && rule->kind != SV_FAULT_DELAY)
		return fail(p, "jitter= only says something about delay=");
	if (p->has_dist && !rule->jitter_ns)
		return fail(p, "dist= only says something about jitter=");
	if (rule->kind == SV_FAULT_HOLD && rule->until_ns == UINT64_MAX)
		return fail(p, "hold needs until=: when what was held goes on");
	if (p->within_ns && rule->kind != SV_FAULT_GPU)
		return fail(p, "within= only says something about gpu=reorder");
	if (rule->unsent && rule->kind != SV_FAULT_WC)
		return fail(p, "sent= only says something about wc=");
	if (rule->kind == SV_FAULT_UNORDERED) {
		if (rule->ops != UINT32_MAX && rule->ops != 1u << SV_OP_WRITE)
			return fail(p, "only WRITEs are unordered: op=write, or no op=");
		if (p->has_dir)
			return fail(p, "unordered happens where WRITEs arrive, which host= and "
				       "rail= name: without dir=");
		rule->ops = 1u << SV_OP_WRITE;
		rule->point = SV_POINT_PLACE;
	} else if (rule->kind == SV_FAULT_GPU) {
		if (p->has_dir)
			return fail(p, "gpu=reorder happens where GPU memory is written, which "
				       "host= and rail= name: without dir=");
		rule->amount = p->within_ns ? p->within_ns : LATE_NS;
		rule->point = SV_POINT_GPU;
	} else if (rule->kind == SV_FAULT_UNREACHABLE) {
		if (p->has_dir || p->packet_word)
			return fail(p, "%s= only says something about packets, not about memory",
				    p->has_dir ? "dir" : p->packet_word);
		rule->point = SV_POINT_MEMORY;
	} else if (of_verb || rule->kind == SV_FAULT_WC) {
		if (p->has_dir)
			return fail(p, "dir= only says something about packets");
		rule->point = of_verb ? SV_POINT_VERB : SV_POINT_WR;
		/* By default the sends: a receive is asked for by name. */
		if (rule->ops == UINT32_MAX)
			rule->ops &= ~(1u << SV_OP_RECV);
	} else if (timed) {
		rule->point = SV_POINT_TIME;
	} else if (!p->has_dir) {
		rule->point = rule->kind == SV_FAULT_KILL ? SV_POINT_RX : SV_POINT_TX;
	}
	if (rule->point == SV_POINT_RX &&
	    (rule->kind == SV_FAULT_REORDER || rule->kind == SV_FAULT_SLOW))
		return fail(p, "reorder and slow happen where a packet leaves: not with dir=rx");
	if (rule->kind == SV_FAULT_KILL && rule->value != SV_KILL_NOW && rule->point == SV_POINT_TX)
		return fail(p, "kill=placed and kill=unplaced happen to a packet that arrives: not "
			       "with dir=tx");
	if (timed && rule->rail == SV_ANY)
		return fail(p, "an action at a time needs rail=");
	if (timed && rule->host == SV_ANY && rule->kind != SV_FAULT_CUT &&
	    rule->kind != SV_FAULT_HEAL)
		return fail(p, "an action at a time needs host=");
	if (timed && rule->kind == SV_FAULT_KILL && rule->value != SV_KILL_NOW)
		return fail(p, "kill=placed and kill=unplaced happen to a packet: use nth= or op=");
	if (timed && rule->phys != SV_ANY && rule->kind != SV_FAULT_EVENT &&
	    rule->kind != SV_FAULT_LINK_DOWN && rule->kind != SV_FAULT_LINK_UP)
		return fail(p, "at a time, port= only says something about link= and event=");
	if (rule->period_ns && !timed)
		return fail(p, "period= needs at= and no packet key");
	if (rule->for_ns && rule->kind < SV_FAULT_LINK_DOWN)
		return fail(p, "for= only says something about link, bond, cut, heal, kill, "
			       "revive, disassociate and feign");
	if (!p->has_count)
		rule->count = rule->nth || lasts(rule->kind) ? 1 : UINT64_MAX;
	return 0;
}

int sv_fault_parse(const char *text, struct sv_fault_rule *rule, char *err, size_t err_size)
{
	struct parser p = {.text = text, .err = err, .err_size = err_size, .rule = rule};
	char copy[SV_FAULT_TEXT], *save = NULL;

	text += strspn(text, " \t\r,");
	memset(rule, 0, sizeof(*rule));
	rule->host = rule->rail = rule->phys = rule->peer = rule->qpn = rule->leg = SV_ANY;
	rule->ops = rule->max_len = UINT32_MAX;
	rule->ack_kinds = SV_ACK_POSITIVE | SV_ACK_RNR | SV_ACK_NAK;
	rule->until_ns = UINT64_MAX;
	if (strlen(text) >= sizeof(copy))
		return fail(&p, "longer than %zu characters", sizeof(copy) - 1);
	memcpy(copy, text, strlen(text) + 1);
	memcpy(rule->text, text, strlen(text) + 1);
	for (char *word = strtok_r(copy, " \t\r,", &save); word;
	     word = strtok_r(NULL, " \t\r,", &save)) {
		char *value = strchr(word, '=');
		size_t i = 0;
		int ret;

		if (value)
			*value++ = '\0';
		while (i < COUNT_OF(tokens) && strcmp(word, tokens[i].name) != 0)
			i++;
		if (i == COUNT_OF(tokens))
			return fail(&p,
				    "unknown word '%s'; see the list of actions and keys in the "
				    "simverbs manual",
				    word);
		ret = tokens[i].parse(&p, word, value, tokens[i].arg);
		if (ret)
			return ret;
	}
	return complete(&p);
}
