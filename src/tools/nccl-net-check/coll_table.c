/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules about a collNet, in the order in which they run. Like table.c it drives the tool and
 * docs/contract.md. What NCCL does is read from its source, 2.20 to 2.30.
 */
#include "rules.h"

static const struct rule rules[] = {
    {
	.name = "coll-vtable",
	.meaning = "The collNet's table has a name and init, and once init has "
		   "succeeded every member that NCCL calls.",
	.otherwise = "NCCL calls members without looking: it crashes.",
	.flags = RULE_COLL | RULE_RAW,
	.run = rule_coll_vtable,
    },
    {
	.name = "coll-init",
	.meaning = "init succeeds, and devices reports at least one.",
	.otherwise = "NCCL goes on without the collNet, silently.",
	.flags = RULE_COLL | RULE_RAW | RULE_GATE,
	.run = rule_coll_init,
    },
    {
	.name = "coll-init-again",
	.meaning = "init succeeds a second time, and the collNet works after "
		   "it.",
	.otherwise = "The second communicator of a process has no collNet.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_init_again,
    },
    {
	.name = "coll-contexts",
	.meaning = "Two contexts work side by side, and the second one after "
		   "the first is finalized.",
	.otherwise = "A job with two communicators loses its collNet when the "
		     "first is destroyed.",
	.since = 11,
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_contexts,
    },
    {
	.name = "coll-reload",
	.meaning = "The library can be closed and loaded again, and its "
		   "collNet works the second time.",
	.otherwise = "NCCL closes the library after the last communicator and "
		     "opens it for the next one.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL | RULE_RAW,
	.run = rule_coll_reload,
    },
    {
	.name = "coll-devices",
	.meaning = "The collNet has as many devices as the net.",
	.otherwise = "NCCL uses one numbering for both: the wrong NIC, or (2.20) "
		     "a number of devices that the net does not have.",
	.flags = RULE_COLL,
	.run = rule_coll_devices,
    },
    {
	.name = "coll-devices-stable",
	.meaning = "devices says the same each time, and on all ranks.",
	.otherwise = "From 2.30.3 on ncclCommInitRank fails where ranks differ.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_devices_stable,
    },
    {
	.name = "coll-properties",
	.meaning = "Speed, port, GUID, maxComms, ptrSupport, latency, name and "
		   "PCI path of a device are the net's.",
	.otherwise = "NCCL keeps what it hears first, and it asks the collNet "
		     "first: its topology is wrong for the net, too.",
	.flags = RULE_COLL,
	.run = rule_coll_properties,
    },
    {
	.name = "coll-max-bytes",
	.meaning = "maxCollBytes is 1 … 2^40.",
	.otherwise = "Set-up fails.",
	.since = 9,
	.flags = RULE_COLL,
	.run = rule_coll_max_bytes,
    },
    {
	.name = "coll-handle-size",
	.meaning = "listen touches no more than the 128 bytes of the handle.",
	.otherwise = "The bytes behind it belong to NCCL.",
	.flags = RULE_COLL,
	.run = rule_coll_handle_size,
    },
    {
	.name = "coll-listen-close",
	.meaning = "closeListen frees what listen took.",
	.otherwise = "Descriptors run out.",
	.flags = RULE_COLL,
	.run = rule_coll_listen_close,
    },
    {
	.name = "coll-connect-waits",
	.meaning = "connect waits for the other ranks and then gives a comm.",
	.otherwise = "NCCL calls it once: without a comm there is no collNet, on "
		     "this node only.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_connect_waits,
    },
    {
	.name = "coll-verdict",
	.meaning = "If connect fails at one rank it fails at all.",
	.otherwise = "NCCL compares failures within a node only: the others wait "
		     "in a collective that this one never joins.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.limit_s = 40,
	.run = rule_coll_verdict,
    },
    {
	.name = "coll-connect-death",
	.meaning = "connect fails, in time, when a rank is dead.",
	.otherwise = "The job hangs while it starts.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.limit_s = 40,
	.run = rule_coll_connect_death,
    },
    {
	.name = "coll-connect-leaks",
	.meaning = "A connect that fails frees the listen comm.",
	.otherwise = "NCCL forgets it: descriptors run out.",
	.flags = RULE_COLL,
	.limit_s = 40,
	.run = rule_coll_connect_leaks,
    },
    {
	.name = "coll-support",
	.meaning = "reduceSupport says 1 or 0, the same each time and on all "
		   "ranks, and floats can be added.",
	.otherwise = "Ranks choose different algorithms: the job hangs.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_support,
    },
    {
	.name = "coll-types",
	.meaning = "Each type and operation that reduceSupport promises gives "
		   "the right result.",
	.otherwise = "Wrong numbers, silently.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.limit_s = 40,
	.run = rule_coll_types,
    },
    {
	.name = "coll-data",
	.meaning = "A sum is the sum of what all ranks gave, element by "
		   "element.",
	.otherwise = "Wrong numbers, silently.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_data,
    },
    {
	.name = "coll-bounds",
	.meaning = "Nothing but the result is written.",
	.otherwise = "The memory around it is the user's.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_bounds,
    },
    {
	.name = "coll-counts",
	.meaning = "Any number of elements will do, also none.",
	.otherwise = "The job fails on some sizes.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_counts,
    },
    {
	.name = "coll-in-place",
	.meaning = "The result may go where the contribution is.",
	.otherwise = "Wrong numbers with registered user buffers.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_in_place,
    },
    {
	.name = "coll-send-kept",
	.meaning = "Out of place the contribution stays as it is.",
	.otherwise = "The user's send buffer is changed.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_send_kept,
    },
    {
	.name = "coll-done",
	.meaning = "When a request is done the result is there, and the "
		   "contribution is not read any more.",
	.otherwise = "NCCL uses both at once for something else: wrong numbers, "
		     "now and then.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_done,
    },
    {
	.name = "coll-stale",
	.meaning = "Any bits can be added, NaN and denormals too, and do not "
		   "matter to their neighbours.",
	.otherwise = "NCCL adds whole chunks, with whatever lies behind the "
		     "data.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_stale,
    },
    {
	.name = "coll-wrap",
	.meaning = "Integers wrap.",
	.otherwise = "Results differ from NCCL's own.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_wrap,
    },
    {
	.name = "coll-request-written",
	.meaning = "iallreduce always writes the request: NULL when it cannot "
		   "be taken now.",
	.otherwise = "NCCL tests what was there before: it crashes.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_request_written,
    },
    {
	.name = "coll-outstanding",
	.meaning = "64 all-reduces may be under way; what is too many for now "
		   "is refused with NULL and taken later.",
	.otherwise = "The job fails under load.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_outstanding,
    },
    {
	.name = "coll-order",
	.meaning = "All-reduces of a group are told apart by their order, in "
		   "whatever order they are tested.",
	.otherwise = "Results in the wrong buffers.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_order,
    },
    {
	.name = "coll-size-null",
	.meaning = "test can be called with size NULL.",
	.otherwise = "NCCL does so for flushes: it crashes.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_size_null,
    },
    {
	.name = "coll-iallreduce-returns",
	.meaning = "iallreduce does not wait for other ranks.",
	.otherwise = "The proxy thread stands still, and with it the connections "
		     "that the other rank needs.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_iallreduce_returns,
    },
    {
	.name = "coll-test-returns",
	.meaning = "test does not wait for other ranks.",
	.otherwise = "As above.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_test_returns,
    },
    {
	.name = "coll-iflush",
	.meaning = "iflush writes the request (NULL: nothing is to be done), "
		   "and what it gives can be tested.",
	.otherwise = "GPUs read what was there before.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_iflush,
    },
    {
	.name = "coll-flushes",
	.meaning = "As many flushes as all-reduces may be under way at the "
		   "same time.",
	.otherwise = "The job fails under load.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_flushes,
    },
    {
	.name = "coll-mr",
	.meaning = "Each registration lasts until it is deregistered itself.",
	.otherwise = "NCCL registers buffers of users that overlap.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_mr,
    },
    {
	.name = "coll-two-groups",
	.meaning = "Two groups of the same ranks work side by side, and one "
		   "after the other is closed.",
	.otherwise = "Communicators of a job mix up their data.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_two_groups,
    },
    {
	.name = "coll-beside-net",
	.meaning = "Connections of the net work beside a group, and a group "
		   "when they are closed.",
	.otherwise = "NCCL uses both at the same time.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.run = rule_coll_beside_net,
    },
    {
	.name = "coll-death",
	.meaning = "An all-reduce whose other rank is dead ends with an error.",
	.otherwise = "The job hangs until somebody ends it.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.limit_s = 40,
	.run = rule_coll_death,
    },
    {
	.name = "coll-end-after-error",
	.meaning = "deregMr and closeColl succeed after an error.",
	.otherwise = "NCCL leaves the rest of its clean-up undone.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.limit_s = 60,
	.run = rule_coll_end_after_error,
    },
    {
	.name = "coll-close-in-flight",
	.meaning = "closeColl succeeds while an all-reduce is under way.",
	.otherwise = "ncclCommAbort hangs.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL,
	.limit_s = 40,
	.run = rule_coll_close_in_flight,
    },
    {
	.name = "coll-leaks",
	.meaning = "A group leaves no descriptor, thread or memory behind.",
	.otherwise = "A service that makes communicators runs out of them.",
	.kind = RULE_PAIR,
	.flags = RULE_COLL | RULE_CYCLES,
	.limit_s = 60,
	.run = rule_coll_leaks,
    },
};

const struct rule_set check_coll_rules = {rules, sizeof(rules) / sizeof(rules[0])};
