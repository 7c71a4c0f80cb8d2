/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pair's states: which transitions there are, and with which attributes. */
#include "probe.h"

#include <errno.h>
#include <stdio.h>

#define NUM_STATES 6
static const enum ibv_qp_state states[NUM_STATES] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						     IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

static void walk_from(struct pair *pair, enum ibv_qp_state from, const struct options *options)
{
	struct words words = {0};
	char name[64];

	for (size_t i = 0; i < NUM_STATES; i++) {
		int rc;

		end_bring(&pair->a, &pair->b, from, options);
		rc = end_modify(&pair->a, &pair->b, states[i], options);
		/* RTS from anything but RTR and SQD has no attributes that would fit. */
		if (rc && states[i] == IBV_QPS_RTS)
			rc = end_to(&pair->a, IBV_QPS_RTS);
		add_word(&words, "%s:%s", state_name(states[i]), errno_name(rc));
		if (!rc && states[i] == IBV_QPS_SQD)
			NEED(!end_to(&pair->a, IBV_QPS_ERR)); /* out of it also while it drains */
	}
	snprintf(name, sizeof(name), "modify.%s.from-%s", options->type == IBV_QPT_UD ? "ud" : "rc",
		 state_name(from));
	answer(name, "%s", words_text(&words));
}

static void ask_transitions(struct probe *probe, enum ibv_qp_type type)
{
	struct options options = patient();
	struct pair pair;

	options.type = type;
	options.a_state = options.b_state = IBV_QPS_RESET;
	pair_open(&pair, &probe->a, &probe->b, &options);
	for (size_t i = 0; i < NUM_STATES; i++)
		walk_from(&pair, states[i], &options);
	pair_close(&pair);
}

static const struct {
	int bit;
	const char *name;
} bits[] = {
    {IBV_QP_CUR_STATE, "CUR_STATE"},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY"},
    {IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS"},
    {IBV_QP_PKEY_INDEX, "PKEY_INDEX"},
    {IBV_QP_PORT, "PORT"},
    {IBV_QP_QKEY, "QKEY"},
    {IBV_QP_AV, "AV"},
    {IBV_QP_PATH_MTU, "PATH_MTU"},
    {IBV_QP_TIMEOUT, "TIMEOUT"},
    {IBV_QP_RETRY_CNT, "RETRY_CNT"},
    {IBV_QP_RNR_RETRY, "RNR_RETRY"},
    {IBV_QP_RQ_PSN, "RQ_PSN"},
    {IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"},
    {IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
    {IBV_QP_SQ_PSN, "SQ_PSN"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
    {IBV_QP_CAP, "CAP"},
    {IBV_QP_DEST_QPN, "DEST_QPN"},
};
#define NUM_BITS (sizeof(bits) / sizeof(bits[0]))

/* Each attribute that is not needed, added; each that is, left out. */
static void ask_mask(struct pair *pair, enum ibv_qp_state from, enum ibv_qp_state to,
		     const struct options *options)
{
	struct words needed = {0}, taken = {0};
	const char *type = options->type == IBV_QPT_UD ? "ud" : "rc";
	char name[64];
	int mask;

	for (size_t i = 0; i < NUM_BITS; i++) {
		struct ibv_qp_attr attr;
		int rc;

		end_bring(&pair->a, &pair->b, from, options);
		attr = attr_for(&pair->a, &pair->b, to, options, &mask);
		attr.cur_qp_state = from;
		rc = ibv_modify_qp(pair->a.qp, &attr, mask ^ bits[i].bit);
		if (mask & bits[i].bit && rc)
			add_word(&needed, "%s", bits[i].name);
		if (!(mask & bits[i].bit) && !rc)
			add_word(&taken, "%s", bits[i].name);
		if (rc && rc != EINVAL)
			add_word(&needed, "(%s:%s)", bits[i].name, errno_name(rc));
	}
	snprintf(name, sizeof(name), "modify.%s.%s.needs", type, state_name(to));
	answer(name, "%s", words_text(&needed));
	snprintf(name, sizeof(name), "modify.%s.%s.also-takes", type, state_name(to));
	answer(name, "%s", words_text(&taken));
}

static void ask_masks(struct probe *probe, enum ibv_qp_type type)
{
	struct options options = patient();
	struct pair pair;

	options.type = type;
	options.a_state = options.b_state = IBV_QPS_INIT;
	pair_open(&pair, &probe->a, &probe->b, &options);
	ask_mask(&pair, IBV_QPS_RESET, IBV_QPS_INIT, &options);
	ask_mask(&pair, IBV_QPS_INIT, IBV_QPS_RTR, &options);
	ask_mask(&pair, IBV_QPS_RTR, IBV_QPS_RTS, &options);
	ask_mask(&pair, IBV_QPS_RTS, IBV_QPS_ERR, &options);
	pair_close(&pair);
}

/* One attribute with a value that it cannot have. Uses the caller's variables. */
#define BAD(WHAT, TO, FIELD, VALUE)                                                                \
	do {                                                                                       \
		end_bring(&pair.a, &pair.b, TO - 1, &options);                                     \
		attr = attr_for(&pair.a, &pair.b, TO, &options, &mask);                            \
		attr.FIELD = VALUE;                                                                \
		answer("modify.bad." WHAT, "%s",                                                   \
		       errno_name(ibv_modify_qp(pair.a.qp, &attr, mask)));                         \
	} while (0)

static void ask_values(struct probe *probe)
{
	struct options options = patient();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;
	int mask;

	options.a_state = options.b_state = IBV_QPS_INIT;
	pair_open(&pair, &probe->a, &probe->b, &options);
	BAD("port-2", IBV_QPS_INIT, port_num, 2);
	BAD("pkey-index", IBV_QPS_INIT, pkey_index, 999);
	BAD("mtu-0", IBV_QPS_RTR, path_mtu, (enum ibv_mtu)0);
	BAD("mtu-6", IBV_QPS_RTR, path_mtu, (enum ibv_mtu)6);
	BAD("sgid-index", IBV_QPS_RTR, ah_attr.grh.sgid_index, (uint8_t)port_empty_gid(&probe->a));
	BAD("not-global", IBV_QPS_RTR, ah_attr.is_global, 0);
	BAD("incoming-reads", IBV_QPS_RTR, max_dest_rd_atomic, 255);
	BAD("outgoing-reads", IBV_QPS_RTS, max_rd_atomic, 255);
	BAD("timeout-32", IBV_QPS_RTS, timeout, 32);
	BAD("retry-count-8", IBV_QPS_RTS, retry_cnt, 8);
	BAD("rnr-retry-8", IBV_QPS_RTS, rnr_retry, 8);

	end_bring(&pair.a, &pair.b, IBV_QPS_INIT, &options);
	attr = attr_for(&pair.a, &pair.b, IBV_QPS_RTR, &options, &mask);
	NEED(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE));
	answer("modify.refused.leaves-state", "%s", state_name(end_state(&pair.a)));
	attr.dest_qp_num = 0xfffff0;
	answer("modify.rtr.of-nobody", "%s", errno_name(ibv_modify_qp(pair.a.qp, &attr, mask)));

	end_bring(&pair.a, &pair.b, IBV_QPS_RTS, &options);
	NEED(!ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT, &init));
	answer("query.gives-back-what-was-set", "%s",
	       yes_no(attr.timeout == options.timeout && attr.retry_cnt == options.retry_cnt &&
		      attr.rnr_retry == options.rnr_retry && attr.sq_psn == pair.a.psn &&
		      attr.dest_qp_num == pair.b.qpn && attr.path_mtu == probe->a.attr.active_mtu));
	answer("query.gives-back-the-queue-pair", "%s",
	       yes_no(init.send_cq == pair.a.cq && init.qp_type == IBV_QPT_RC));
	pair_close(&pair);
}

/* A queue pair goes through RESET and works again. */
static void ask_reuse(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!post_write(&pair.a, &pair.b, 100, 1));
	answer("reuse.first-life", "%s", next_status(&pair.a, WAIT_MS));
	NEED(!end_to(&pair.a, IBV_QPS_ERR) && !end_to(&pair.b, IBV_QPS_ERR));
	pair.a.psn = 0x10;
	pair.b.psn = 0x20;
	end_bring(&pair.b, &pair.a, IBV_QPS_RTS, &options);
	end_bring(&pair.a, &pair.b, IBV_QPS_RTS, &options);
	NEED(!post_write(&pair.a, &pair.b, 100, 1));
	answer("reuse.after-reset", "%s", next_status(&pair.a, WAIT_MS));
	pair_close(&pair);
}

void ask_states(struct probe *probe)
{
	ask_transitions(probe, IBV_QPT_RC);
	ask_transitions(probe, IBV_QPT_UD);
	ask_masks(probe, IBV_QPT_RC);
	ask_masks(probe, IBV_QPT_UD);
	ask_values(probe);
	ask_reuse(probe);
}
