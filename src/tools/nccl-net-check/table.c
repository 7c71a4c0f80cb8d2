/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules, in the order in which they run: from loading to the end. This table drives the tool
 * and docs/contract.md is made from it. What NCCL does is read from its source, 2.20 to 2.30.
 */
#include "rules.h"

static const struct rule rules[] = {
    {
	.name = "vtable",
	.meaning = "The table has a name and init, and once init has succeeded every member that "
		   "NCCL calls.",
	.otherwise = "NCCL calls members without looking and compares the name with NCCL_NET: it "
		     "crashes.",
	.flags = RULE_RAW,
	.run = rule_vtable,
    },
    {
	.name = "init",
	.meaning = "init succeeds and devices reports at least one.",
	.otherwise = "NCCL passes the plugin over, silently, for its own IB transport or sockets.",
	.flags = RULE_RAW | RULE_GATE,
	.run = rule_init,
    },
    {
	.name = "init-again",
	.meaning = "init succeeds a second time, and the plugin works after it.",
	.otherwise = "From v11 on init is called for each communicator: the second one would find "
		     "no network. Before, several communicator generations share one library.",
	.flags = RULE_RAW,
	.run = rule_init_again,
    },
    {
	.name = "contexts",
	.meaning = "Two contexts work side by side, and the second one after the first is "
		   "finalized.",
	.otherwise = "A job with two communicators loses its network when the first is destroyed.",
	.since = 11,
	.flags = RULE_RAW,
	.run = rule_contexts,
    },
    {
	.name = "init-after-finalize",
	.meaning = "After the last finalize, init starts everything again.",
	.otherwise = "The next communicator of the process fails to initialise.",
	.since = 11,
	.flags = RULE_RAW,
	.run = rule_init_after_finalize,
    },
    {
	.name = "reload",
	.meaning = "The library can be closed and loaded again, and works the second time.",
	.otherwise = "NCCL closes the library after the last communicator and opens it for the "
		     "next one: the process crashes or falls back to another network.",
	.flags = RULE_RAW,
	.run = rule_reload,
    },
    {
	.name = "unload",
	.meaning = "No thread of the plugin outlives dlclose, or the library stays mapped (link "
		   "with -z nodelete).",
	.otherwise = "The thread runs into unmapped code: the process dies at the end of the job.",
	.flags = RULE_RAW,
	.run = rule_unload,
    },
    {
	.name = "net-attr",
	.meaning = "setNetAttr is advice: any value is accepted, also unknown (-1).",
	.otherwise = "The communicator fails before its first operation.",
	.since = 11,
	.run = rule_net_attr,
    },
    {
	.name = "devices-stable",
	.meaning = "devices and getProperties say the same each time, and strings once given stay "
		   "as they are.",
	.otherwise = "NCCL keeps the pointers: its topology has wrong names, or it reads freed "
		     "memory.",
	.run = rule_devices_stable,
    },
    {
	.name = "properties",
	.meaning = "Properties are within their ranges: speed, port, maxComms, maxRecvs, host "
		   "memory, vProps, maxP2pBytes.",
	.otherwise = "NCCL divides bandwidth by speed, fails setup on a bad maxP2pBytes, and "
		     "leaves out devices it cannot use.",
	.run = rule_properties,
    },
    {
	.name = "properties-sysfs",
	.meaning = "Speed, GUID, port and PCI path agree with sysfs (below SYSFS_PATH when set).",
	.otherwise = "The topology search places rings and trees for hardware that is not there: "
		     "GPUs use a distant NIC, silently.",
	.run = rule_properties_sysfs,
    },
    {
	.name = "every-device",
	.meaning = "A connection can be made and used on every device that is reported.",
	.otherwise = "The job fails on the rail that was only promised.",
	.limit_s = 60,
	.run = rule_every_device,
    },
    {
	.name = "handle-size",
	.meaning = "listen and connect touch no more than the 128 bytes of the handle.",
	.otherwise = "The bytes behind it belong to NCCL's bootstrap: setup is corrupted.",
	.run = rule_handle_size,
    },
    {
	.name = "handle-state",
	.meaning = "What a half-open connect has to remember is kept in the handle; connects may "
		   "interleave.",
	.otherwise = "NCCL calls connect for many peers in turn: peers get each other's "
		     "connections or none.",
	.run = rule_handle_state,
    },
    {
	.name = "handle-garbage",
	.meaning = "A handle that no listen made is refused before anything in it is believed.",
	.otherwise = "A peer with another plugin or version makes the job crash or hang instead "
		     "of failing with a message.",
	.run = rule_handle_garbage,
    },
    {
	.name = "connect-returns",
	.meaning = "connect never waits: success without a comm means call again.",
	.otherwise = "One proxy thread serves all peers: one that is late stalls all, and two "
		     "that wait for each other hang.",
	.run = rule_connect_returns,
    },
    {
	.name = "accept-returns",
	.meaning = "accept never waits.",
	.otherwise = "As with connect: one peer that is late stalls all.",
	.run = rule_accept_returns,
    },
    {
	.name = "stranger",
	.meaning = "Who connects to the listening port without being the peer (silent, talking, "
		   "flooding) disturbs nobody.",
	.otherwise = "A port scan wedges the accept of a starting job, or aborts it.",
	.run = rule_stranger,
    },
    {
	.name = "flood",
	.meaning = "Strangers who keep coming to the listening port, 40 for each call of accept, "
		   "keep the peer out no longer than twice the time that it takes without them.",
	.otherwise = "Whoever reaches the port of one rank keeps the job from starting for as long "
		     "as he likes.",
	.run = rule_flood,
    },
    {
	.name = "listen-close",
	.meaning = "closeListen succeeds unused, and with a connect under way.",
	.otherwise = "With shared connections some listen comms are closed without an accept: "
		     "setup fails.",
	.run = rule_listen_close,
    },
    {
	.name = "traffic-class",
	.meaning = "Every traffic class is accepted, also none (-1).",
	.otherwise = "A communicator with config.trafficClass set has no network.",
	.since = 10,
	.flags = RULE_RAW,
	.run = rule_traffic_class,
    },
    {
	.name = "many-connections",
	.meaning = "Sixteen connections between two processes work at once.",
	.otherwise = "Channels and peers each need their own: the job fails or gets wrong data.",
	.kind = RULE_PAIR,
	.run = rule_many_connections,
    },
    {
	.name = "two-threads",
	.meaning = "A connection made in one thread is used in another.",
	.otherwise = "NCCL's service thread connects, its progress thread sends: nothing moves.",
	.run = rule_two_threads,
    },
    {
	.name = "proxies",
	.meaning = "Several threads, each with its own connections, work at the same time.",
	.otherwise = "A process with several GPUs has as many proxies: crashes, or wrong data.",
	.run = rule_proxies,
    },
    {
	.name = "request-written",
	.meaning = "isend and irecv write *request on every path, NULL included.",
	.otherwise = "The slot holds a stale pointer, and NCCL tests a request that is not there: "
		     "a hang or a crash.",
	.run = rule_request_written,
    },
    {
	.name = "data",
	.meaning = "When a receive is done all its bytes are there, for any size and address, and "
		   "none behind them.",
	.otherwise = "Wrong results.",
	.kind = RULE_PAIR,
	.run = rule_data,
    },
    {
	.name = "send-done",
	.meaning = "When a send is done the plugin reads its memory no more.",
	.otherwise = "The GPU writes the next step into the buffer: the peer gets a mixture.",
	.kind = RULE_PAIR,
	.limit_s = 30,
	.run = rule_send_done,
    },
    {
	.name = "sizes",
	.meaning = "test reports what was sent, not the room of the receive.",
	.otherwise = "NCCL flushes and forwards by that size: stale bytes become results.",
	.kind = RULE_PAIR,
	.run = rule_sizes,
    },
    {
	.name = "size-zero",
	.meaning = "A send of 0 bytes completes the receive, with size 0.",
	.otherwise = "The last step of uneven collectives hangs.",
	.kind = RULE_PAIR,
	.run = rule_size_zero,
    },
    {
	.name = "sizes-null",
	.meaning = "test accepts NULL for sizes.",
	.otherwise = "NCCL passes NULL where it does not care: a crash.",
	.run = rule_sizes_null,
    },
    {
	.name = "sizes-exact",
	.meaning = "test writes n sizes for a receive of n and at most one for a send.",
	.otherwise = "NCCL passes the address of a single int: its stack is overwritten.",
	.kind = RULE_PAIR,
	.run = rule_sizes_exact,
    },
    {
	.name = "sizes-group",
	.meaning = "Each of n sizes is that of its own send.",
	.otherwise = "Channels that share a connection get each other's sizes: wrong results.",
	.kind = RULE_PAIR,
	.run = rule_sizes_group,
    },
    {
	.name = "tags",
	.meaning = "In a group, a send fills the buffer with its tag, whatever the order of the "
		   "sends.",
	.otherwise = "Channels that share a connection get each other's data: wrong results.",
	.kind = RULE_PAIR,
	.run = rule_tags,
    },
    {
	.name = "group-interleave",
	.meaning = "A send for a later group waits while the oldest group is incomplete.",
	.otherwise = "NCCL offers such sends all the time: an error ends the job, jumping in "
		     "gives wrong data.",
	.kind = RULE_PAIR,
	.run = rule_group_interleave,
    },
    {
	.name = "fifo",
	.meaning = "Sends with one tag fill the receives in the order in which those were posted.",
	.otherwise = "Steps of a collective are swapped: wrong results.",
	.kind = RULE_PAIR,
	.run = rule_fifo,
    },
    {
	.name = "outstanding",
	.meaning = "32 receives of maxRecvs buffers may be outstanding, with all their sends.",
	.otherwise = "NCCL waits for a slot that the plugin never had: a hang under load.",
	.kind = RULE_PAIR,
	.run = rule_outstanding,
    },
    {
	.name = "recycle",
	.meaning = "A completion is never applied to the next request in the same slot.",
	.otherwise = "Now and then a receive is done without its data: wrong results, rarely.",
	.kind = RULE_PAIR,
	.run = rule_recycle,
    },
    {
	.name = "capacity",
	.meaning = "A send larger than its receive is cut off, as by NCCL's own transport, or is "
		   "an error; "
		   "it never writes behind the buffer, and what arrives is right.",
	.otherwise = "A mismatch of two ranks corrupts memory instead of being reported.",
	.run = rule_capacity,
    },
    {
	.name = "size-2g",
	.meaning = "A message of more than 2 GiB arrives (if maxP2pBytes allows it).",
	.otherwise = "Registered buffers are sent whole: the size turns negative, the job fails "
		     "or hangs.",
	.since = 9,
	.kind = RULE_PAIR,
	.flags = RULE_SLOW,
	.limit_s = 60,
	.run = rule_size_2g,
    },
    {
	.name = "optional-recv",
	.meaning = "irecv with NCCL_NET_OPTIONAL_RECV_COMPLETION in *request writes a request, "
		   "and the data arrives.",
	.otherwise = "LL and LL128 do that for each message: NCCL tests address 1, or waits for "
		     "ever.",
	.since = 9,
	.kind = RULE_PAIR,
	.run = rule_optional_recv,
    },
    {
	.name = "iflush",
	.meaning = "iflush of a completed receive succeeds, and its request, if any, is done soon.",
	.otherwise = "Every message of the Simple protocol waits for its flush: a hang.",
	.run = rule_iflush,
    },
    {
	.name = "test-returns",
	.meaning = "test takes a short time, whether there is something to do or not.",
	.otherwise = "One progress thread drives all connections: one test that waits starves the "
		     "others.",
	.run = rule_test_returns,
    },
    {
	.name = "mr-use",
	.meaning = "Ranges may be registered twice, overlap, begin anywhere, and go in any order.",
	.otherwise = "User-buffer registration fails, or frees what another one needs.",
	.run = rule_mr_use,
    },
    {
	.name = "mr-global",
	.meaning = "With regIsGlobal, memory registered through one comm is used through another.",
	.otherwise = "NCCL registers a user buffer once for all connections: transfers fail.",
	.run = rule_mr_global,
    },
    {
	.name = "dmabuf-fd",
	.meaning = "regMrDmaBuf needs its descriptor no more after it has returned (own dup).",
	.otherwise = "NCCL closes it at once, and its number soon means another file: "
		     "registrations fail later, or name the wrong memory.",
	.run = rule_dmabuf_fd,
    },
    {
	.name = "mr-race",
	.meaning = "regMr and deregMr may run in one thread while isend, irecv and test run in "
		   "another, on the same comm.",
	.otherwise = "User-buffer registration on a busy communicator crashes.",
	.run = rule_mr_race,
    },
    {
	.name = "close-in-flight",
	.meaning = "deregMr and close succeed, at once, with requests in flight.",
	.otherwise = "ncclCommAbort hangs, or abandons all other connections with their memory.",
	.kind = RULE_PAIR,
	.run = rule_close_in_flight,
    },
    {
	.name = "close-after-send",
	.meaning = "A message whose send is done arrives although the sender has deregistered its "
		   "memory and closed.",
	.otherwise = "The last steps of a job are lost when one rank destroys its communicator "
		     "first.",
	.kind = RULE_PAIR,
	.run = rule_close_after_send,
    },
    {
	.name = "close-after-death",
	.meaning = "close succeeds, at once, after the peer's process has died.",
	.otherwise = "Fault-tolerant jobs that abort and rebuild hang, or leak every remaining "
		     "connection.",
	.kind = RULE_PAIR,
	.limit_s = 40,
	.run = rule_close_after_death,
    },
    {
	.name = "dereg-after-error",
	.meaning = "deregMr succeeds on a comm that has failed.",
	.otherwise = "NCCL abandons the clean-up of the whole communicator at the first error.",
	.kind = RULE_PAIR,
	.limit_s = 40,
	.run = rule_dereg_after_error,
    },
    {
	.name = "error-latched",
	.meaning = "After an error every later call on the comm reports one.",
	.otherwise = "Another channel goes on with a connection that has lost a message: a hang "
		     "or wrong results.",
	.kind = RULE_PAIR,
	.limit_s = 40,
	.run = rule_error_latched,
    },
    {
	.name = "leaks",
	.meaning = "A connect/transfer/close cycle leaves no descriptor, thread, mapping or "
		   "memory behind.",
	.otherwise = "A long-running service that makes communicators runs out of them.",
	.kind = RULE_PAIR,
	.flags = RULE_CYCLES,
	.limit_s = 30,
	.run = rule_leaks,
    },
};

const struct rule_set check_net_rules = {rules, sizeof(rules) / sizeof(rules[0])};
