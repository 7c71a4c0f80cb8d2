/* SPDX-License-Identifier: Apache-2.0 */
/* Names that fault rules use for completion statuses, events and verbs. */
#include "fault_names.h"

#include "fault.h"

#include <string.h>

static const char *const wc_names[] = {
    [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
    [IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
    [IBV_WC_LOC_EEC_OP_ERR] = "LOC_EEC_OP_ERR",
    [IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
    [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
    [IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
    [IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR",
    [IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
    [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
    [IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
    [IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
    [IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
    [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
    [IBV_WC_LOC_RDD_VIOL_ERR] = "LOC_RDD_VIOL_ERR",
    [IBV_WC_REM_INV_RD_REQ_ERR] = "REM_INV_RD_REQ_ERR",
    [IBV_WC_REM_ABORT_ERR] = "REM_ABORT_ERR",
    [IBV_WC_INV_EECN_ERR] = "INV_EECN_ERR",
    [IBV_WC_INV_EEC_STATE_ERR] = "INV_EEC_STATE_ERR",
    [IBV_WC_FATAL_ERR] = "FATAL_ERR",
    [IBV_WC_RESP_TIMEOUT_ERR] = "RESP_TIMEOUT_ERR",
    [IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
};

/* Events that belong to a port or device; those of objects come from what happens to them. */
static const char *const event_names[] = {
    [IBV_EVENT_DEVICE_FATAL] = "DEVICE_FATAL",
    [IBV_EVENT_PORT_ACTIVE] = "PORT_ACTIVE",
    [IBV_EVENT_PORT_ERR] = "PORT_ERR",
    [IBV_EVENT_LID_CHANGE] = "LID_CHANGE",
    [IBV_EVENT_PKEY_CHANGE] = "PKEY_CHANGE",
    [IBV_EVENT_SM_CHANGE] = "SM_CHANGE",
    [IBV_EVENT_CLIENT_REREGISTER] = "CLIENT_REREGISTER",
    [IBV_EVENT_GID_CHANGE] = "GID_CHANGE",
};

static const char *const verb_names[SV_VERB_COUNT] = {
    [SV_VERB_OPEN_DEVICE] = "open_device",
    [SV_VERB_CLOSE_DEVICE] = "close_device",
    [SV_VERB_QUERY_DEVICE] = "query_device",
    [SV_VERB_QUERY_PORT] = "query_port",
    [SV_VERB_QUERY_GID] = "query_gid",
    [SV_VERB_ALLOC_PD] = "alloc_pd",
    [SV_VERB_DEALLOC_PD] = "dealloc_pd",
    [SV_VERB_REG_MR] = "reg_mr",
    [SV_VERB_REG_DMABUF_MR] = "reg_dmabuf_mr",
    [SV_VERB_REREG_MR] = "rereg_mr",
    [SV_VERB_DEREG_MR] = "dereg_mr",
    [SV_VERB_CREATE_COMP_CHANNEL] = "create_comp_channel",
    [SV_VERB_CREATE_CQ] = "create_cq",
    [SV_VERB_RESIZE_CQ] = "resize_cq",
    [SV_VERB_DESTROY_CQ] = "destroy_cq",
    [SV_VERB_CREATE_SRQ] = "create_srq",
    [SV_VERB_MODIFY_SRQ] = "modify_srq",
    [SV_VERB_QUERY_SRQ] = "query_srq",
    [SV_VERB_DESTROY_SRQ] = "destroy_srq",
    [SV_VERB_CREATE_AH] = "create_ah",
    [SV_VERB_DESTROY_AH] = "destroy_ah",
    [SV_VERB_CREATE_QP] = "create_qp",
    [SV_VERB_MODIFY_QP] = "modify_qp",
    [SV_VERB_RESET] = "reset",
    [SV_VERB_INIT] = "init",
    [SV_VERB_RTR] = "rtr",
    [SV_VERB_RTS] = "rts",
    [SV_VERB_SQD] = "sqd",
    [SV_VERB_ERR] = "err",
    [SV_VERB_QUERY_QP] = "query_qp",
    [SV_VERB_DESTROY_QP] = "destroy_qp",
    [SV_VERB_POST_SEND] = "post_send",
    [SV_VERB_POST_RECV] = "post_recv",
    [SV_VERB_POST_SRQ_RECV] = "post_srq_recv",
    [SV_VERB_POLL_CQ] = "poll_cq",
    [SV_VERB_REQ_NOTIFY_CQ] = "req_notify_cq",
    [SV_VERB_QUERY_ECE] = "query_ece",
    [SV_VERB_SET_ECE] = "set_ece",
};

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* Index in a table with holes; -1: no such name. */
static int find(const char *name, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (names[i] && !strcmp(name, names[i]))
			return (int)i;
	return -1;
}

int sv_wc_by_name(const char *name)
{
	return find(name, wc_names, COUNT_OF(wc_names));
}

int sv_event_by_name(const char *name)
{
	return find(name, event_names, COUNT_OF(event_names));
}

int sv_verb_by_name(const char *name)
{
	return find(name, verb_names, COUNT_OF(verb_names));
}

bool sv_verb_is_command(enum sv_verb verb)
{
	return verb > SV_VERB_NONE && verb < SV_VERB_POST_SEND;
}

enum sv_verb sv_verb_to_state(enum ibv_qp_state state)
{
	static const enum sv_verb verbs[] = {
	    [IBV_QPS_RESET] = SV_VERB_RESET, [IBV_QPS_INIT] = SV_VERB_INIT,
	    [IBV_QPS_RTR] = SV_VERB_RTR,     [IBV_QPS_RTS] = SV_VERB_RTS,
	    [IBV_QPS_SQD] = SV_VERB_SQD,     [IBV_QPS_SQE] = SV_VERB_NONE,
	    [IBV_QPS_ERR] = SV_VERB_ERR};

	return (unsigned int)state < COUNT_OF(verbs) ? verbs[state] : SV_VERB_NONE;
}

const char *sv_verb_name(enum sv_verb verb)
{
	return (unsigned int)verb < SV_VERB_COUNT && verb_names[verb] ? verb_names[verb] : "?";
}
