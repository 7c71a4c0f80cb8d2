/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drills. Two hosts, a rank on each, and unless said otherwise two rails, two connections per
 * direction with a primary on each rail, default settings.
 */
#include "drill.h"

/* Messages small enough to have many in flight when a fault falls, and every iteration checked. */
#define TRAFFIC	     "--op", "allreduce", "--sizes", "256K", "--chunk", "32K"
#define BOTH_RAILS   TRAFFIC, "-C", "2"
#define ON_RAIL_ZERO TRAFFIC, "-C", "2", "--dev", "0"

/* Silence stops everything for four stalls of 10 ms at least, before an inquiry ends: less, and the
 * fault was not there. */
#define INQUIRY_MIN_MS 35

/* A NIC of host 0 that keeps commands to itself: whoever asked for the verb, nobody waits for it.
 */
#define KEEPS(at_ms, how_long, verb, rail)                                                         \
	at_ms " fault wait=" how_long " verb=" verb " host=0 rail=" rail "\n"
#define SICK_NIC(what, why, least, most, steps)                                                    \
	{                                                                                          \
		.name = "sick-nic-" what, .proves = why, .args = {BOTH_RAILS}, .script = steps,    \
		.switches_min = (least), .switches_max = (most),                                   \
		.reasons = "local port down|peer's port down", .stall_max_ms = 200,                \
	}

/*
 * A queue pair breaks in the middle of a message, `times` times, and the port is healthy. Each time
 * both ends of its connection go on with another one, unless the next fault comes before they do.
 */
#define CELL(what, why, times, count, traffic, rule, stall_ms)                                     \
	{                                                                                          \
		.name = what, .proves = why, .args = {traffic}, .switches_min = (count),           \
		.script = "1000+1000x" times " fault " rule, .switches_max = -1, .tail_ms = 1500,  \
		.stall_max_ms = (stall_ms), .fabric = {"--rate", "4", "--pace"},                   \
	}
/* A few times, and as often as in the study that the fault is of. */
#define CELLS(what, why, traffic, rule, stall_ms)                                                  \
	CELL(what, why, "3", 3, ARGS(traffic), rule, stall_ms),                                    \
	    CELL(what "-30-times", why ", 30 times", "30", 30, ARGS(traffic), rule, stall_ms)
#define ARGS(...)      __VA_ARGS__
#define MESSAGES(size) "--op", "sendrecv", "--sizes", size, "-C", "2"

const struct drill drills[] = {
    {
	.name = "link-down",
	.proves = "a cable pulled at either end is a pause of milliseconds",
	.args = {BOTH_RAILS},
	.script = "1500 link 0 0 down\n3000 link 0 0 up\n"
		  "4500 link 1 1 down\n6000 link 1 1 up",
	.switches_min = 12,
	.switches_max = 24,
	.reasons = "local port down",
	.stall_max_ms = 300,
    },
    {
	.name = "no-failback-unasked",
	.proves = "a connection stays where it went when its primary is back",
	.args = {ON_RAIL_ZERO},
	.script = "1500 link 0 0 down\n2000 link 0 0 up",
	.tail_ms = 2500,
	.switches_min = 4,
	.switches_max = 8,
	.reasons = "local port down",
	.stall_max_ms = 300,
	.ends_on_rail = 1 + 1,
    },
    {
	.name = "failback",
	.proves = "with HA_NCCL_ENABLE_FAILBACK=1 a connection returns to its primary",
	.env = {"HA_NCCL_ENABLE_FAILBACK=1", "HA_NCCL_HEARTBEAT_MS=50"},
	.args = {ON_RAIL_ZERO},
	.script = "1000 link 0 0 down\n1500 link 0 0 up",
	.tail_ms = 5000,
	.switches_min = 8,
	.switches_max = 24,
	.reasons = "preferred path is back",
	.stall_max_ms = 300,
	.ends_on_rail = 1 + 0,
    },
    {
	.name = "port-flap",
	.proves = "ports that flap at both ends cost a pause each",
	.args = {BOTH_RAILS},
	.script = "1500 link 0 0 down\n1520 link 0 0 up\n"
		  "3000 link 1 1 down\n3020 link 1 1 up",
	.switches_min = 4,
	.switches_max = -1,
	.stall_max_ms = 1500,
    },
    {
	.name = "device-kill-and-revive",
	.proves = "the death of a NIC is survived, with completion end to end",
	.env = {"HA_NCCL_COMPLETION=e2e"},
	.args = {BOTH_RAILS},
	.script = "1500 device 1 0 kill\n3000 device 1 0 revive",
	.switches_min = 4,
	.switches_max = -1,
	.stall_max_ms = 300,
    },
    /* A reset of one NIC, then of the other: without the first one's return nothing would be left.
     */
    {
	.name = "reset-then-the-other",
	.proves = "a NIC that comes back from a reset is opened again, and carries when the other "
		  "one dies",
	.env = {"HA_NCCL_COMPLETION=e2e"},
	.args = {BOTH_RAILS},
	.script = "1000 device 1 0 kill\n1500 device 1 0 revive\n"
		  "6000 device 1 1 kill",
	.tail_ms = 2000,
	.switches_min = 8,
	.switches_max = -1,
	.stall_max_ms = 300,
	.ends_on_rail = 1 + 0,
    },
    /* The kernel answers EIO for it first; its queue pairs go on until they are destroyed, and then
     * comes the event. */
    {
	.name = "device-taken-away",
	.proves = "a NIC that is unbound from its driver is a pause of milliseconds",
	.args = {BOTH_RAILS},
	.script = "1000 fault disassociate=20ms host=1 rail=0",
	.tail_ms = 1000,
	.switches_min = 4,
	.switches_max = 12,
	.stall_max_ms = 300,
	.ends_on_rail = 1 + 1,
    },
    {
	.name = "unanswered-address",
	.proves = "where no neighbour answers, a path in reserve takes seconds and traffic none",
	/* Nothing is left but one path: a host that gets no processor for half a second must not
	   cost it. */
	.env = {"HA_NCCL_QP_TIMEOUT=18", "HA_NCCL_RTO_MS=10000"},
	.args = {ON_RAIL_ZERO},
	/* The path in reserve was built before; the one after it goes to where nobody answers. */
	.script = "1490 fault wait=900ms verb=rtr\n"
		  "1495 fault errno=ETIMEDOUT verb=rtr\n"
		  "1500 link 0 0 down\n"
		  "2000 link 0 0 up",
	.tail_ms = 3500,
	.switches_min = 4,
	.switches_max = 8,
	.reasons = "local port down",
	.stall_max_ms = 200,
    },
    {
	.name = "slow-destroy",
	.proves = "queue pairs that take seconds to destroy hold up nobody",
	.env = {"HA_NCCL_QP_TIMEOUT=18", "HA_NCCL_RTO_MS=10000"}, /* only the link fails */
	.args = {BOTH_RAILS},
	.script = "1490 fault wait=1500ms verb=destroy_qp\n"
		  "1500 link 0 0 down\n"
		  "2500 link 0 0 up",
	.tail_ms = 3500,
	.switches_min = 4,
	.switches_max = 8,
	/* Without a processor queue pairs do not drain in time. That the fence destroys them takes
	 * the device 1.5 s, and makes it sick. */
	.switches_sick = 8,
	.reasons = "local port down",
	.stall_max_ms = 200,
    },
    SICK_NIC("fence", "a NIC that does not stop a queue pair for 20 s is left like any other", 4, 8,
	     KEEPS("1490", "20s", "modify_qp", "0") "1500 link 0 0 down"),
    SICK_NIC(
	"destroy", "so is one that neither flushes nor destroys", 4, 8,
	KEEPS("1440", "30s", "destroy_qp", "0") "1465 fault wedge=hard host=0 rail=0 op=write\n"
						"1500 link 0 0 down"),
    SICK_NIC("create", "a path that waits 30 s for its queue pairs holds up no other", 4, 8,
	     KEEPS("1490", "30s", "create_qp", "0") "1500 link 0 0 down\n"
						    "1700 link 0 0 up"),
    SICK_NIC("register", "nor one that waits for its memory", 4, 8,
	     KEEPS("1490", "30s", "reg_mr", "0") "1500 link 0 0 down\n"
						 "1700 link 0 0 up"),
    SICK_NIC("query", "nor a port that comes up and does not say its state for 20 s", 12, 16,
	     KEEPS("1490", "20s", "query_port", "0") "1500 link 0 0 down\n"
						     "1700 link 0 0 up\n"
						     "2500 link 1 1 down"),
    /* The path in reserve is to another port of the peer's, of which no heartbeat knows yet. */
    SICK_NIC("address", "nor one whose heartbeats wait 30 s for an address", 4, 8,
	     KEEPS("1490", "30s", "create_ah", "1") "1500 link 1 1 down"),
    {
	.name = "silent-cut",
	.proves = "a cut inside the switch, which nobody is told of, is noticed by its silence",
	.args = {BOTH_RAILS},
	.script = "2000 cut 0\n4500 cut 0 --heal",
	.switches_min = 4,
	.switches_max = 8,
	.reasons = "heartbeats lost|error completion",
	.stall_min_ms = INQUIRY_MIN_MS,
	.stall_max_ms = 1200,
    },
    {
	.name = "one-way-cut",
	.proves = "so is a switch that loses packets in one direction only",
	.args = {BOTH_RAILS},
	.script = "2000 cut 0 --host 0 --direction from\n4500 cut 0 --heal",
	.switches_min = 4,
	.switches_max = 8,
	.stall_min_ms = INQUIRY_MIN_MS,
	.stall_max_ms = 1500,
    },
    /* An equal way between switches, or a leg of a bond: heartbeats go another one. */
    {
	.name = "one-queue-pair-is-dead",
	.proves = "a way that loses the packets of one queue pair, and no heartbeats, costs its "
		  "connection a pause and no other one anything",
	.args = {ON_RAIL_ZERO},
	.script = "1500 fault drop host=0 rail=0 op=write minlen=1000 qpn=first",
	.switches_min = 2,
	.switches_max = 2,
	.reasons = "error completion|no completion in time",
	.stall_min_ms = INQUIRY_MIN_MS,
	.stall_max_ms = 1500,
    },
    {
	.name = "crossed",
	.proves = "A loses NIC 0, B loses NIC 1: they meet from A's NIC 1 to B's NIC 0",
	.args = {BOTH_RAILS},
	.script = "1500 link 0 0 down\n3500 link 1 1 down",
	.tail_ms = 2500,
	.switches_min = 8,
	.switches_max = -1,
	.stall_max_ms = 2500,
    },
    /*
     * When the path in reserve is gone as well, all pairs that are left are tried at once and the
     * first that works is taken. It may go across the rails, so there is no one rail to end on.
     */
    {
	.name = "double",
	.proves = "the second path fails while connections move to it",
	.rails = 3,
	.args = {ON_RAIL_ZERO},
	.script = "1990 fault link=down host=0 rail=1 op=write count=1\n"
		  "2000 link 0 0 down",
	.tail_ms = 3000,
	.switches_min = 4,
	.switches_max = -1,
	.stall_max_ms = 2500,
    },
    {
	.name = "standby-dies-during-replay",
	.proves = "the second path fails in the middle of the replay",
	.rails = 3,
	.args = {"--op", "sendrecv", "--sizes", "4M", "--chunk", "128K", "--depth", "32", "-C", "2",
		 "--dev", "0"},
	.script = "1990 fault link=down host=1 rail=1 op=write minlen=4000 nth=40 count=1\n"
		  "2000 link 0 0 down",
	.tail_ms = 3000,
	.switches_min = 4,
	.switches_max = -1,
	.stall_max_ms = 2500,
    },
    {
	.name = "flapping",
	.proves = "a link that will not settle costs speed, not data",
	.args = {BOTH_RAILS},
	.script = "1500+200x20 link 0 0 down\n1550+200x20 link 0 0 up",
	.switches_min = 4,
	.switches_max = -1,
	.stall_max_ms = 2500,
    },
    {
	.name = "flapping-for-a-minute",
	.proves = "nor does it after a minute, on both hosts",
	.args = {BOTH_RAILS},
	.script = "1500+200x300 link 0 0 down\n1550+200x300 link 0 0 up\n"
		  "1600+310x190 link 1 1 down\n1650+310x190 link 1 1 up",
	.switches_min = 4,
	.switches_max = -1,
	.stall_max_ms = 5000,
    },
    {
	.name = "single-port-flap",
	.proves = "hosts with one port recover in place",
	.rails = 1,
	.args = {TRAFFIC, "-C", "2"},
	.script = "1500 link 0 0 down\n2500 link 0 0 up\n4500 cut 0\n6500 cut 0 --heal",
	.tail_ms = 3000,
	.switches_min = 4,
	.switches_max = -1,
	.stall_min_ms = 900,
	.stall_max_ms = 4500,
    },
    {
	.name = "outage-30s",
	.proves = "with the defaults 30 s without any path are survived",
	.args = {BOTH_RAILS},
	.script = "1500 cut 0\n1500 cut 1\n31500 cut 0 --heal\n31500 cut 1 --heal",
	.tail_ms = 3000,
	.switches_min = 4,
	.switches_max = -1,
	.stall_min_ms = 28000,
	.stall_max_ms = 33000,
    },
    {
	.name = "outage-to-the-deadline",
	.proves =
	    "with no path left both ends get a clean error at the deadline that was asked for",
	.env = {"HA_NCCL_OUTAGE_MS=10000"},
	.args = {BOTH_RAILS},
	.script = "1500 cut 0\n1500 cut 1",
	.tail_ms = 20000,
	.fate = DRILL_FAILS,
	.error_min_ms = 9500,
	.error_max_ms = 13000,
    },
    {
	.name = "outage-of-three-retries",
	.proves = "HA_NCCL_MAX_RETRIES times HA_NCCL_RTO_MS is that deadline where "
		  "HA_NCCL_OUTAGE_MS is not set",
	.env = {"HA_NCCL_MAX_RETRIES=3", "HA_NCCL_RTO_MS=500"},
	.args = {BOTH_RAILS},
	.script = "1500 cut 0\n1500 cut 1",
	.tail_ms = 10000,
	.fate = DRILL_FAILS,
	.error_min_ms = 1400,
	.error_max_ms = 2500,
    },
    {
	.name = "peer-killed",
	.proves = "a peer that dies is an error at once, not a path to be mended for a minute",
	.args = {BOTH_RAILS},
	.script = "1500 process 1 kill",
	.tail_ms = 10000,
	.fate = DRILL_BEREAVED,
	.error_max_ms = 100,
	.says = "its socket is closed and another one refused",
    },
    {
	.name = "peer-killed-while-receiving",
	.proves = "a peer that dies in the middle of a message is an error at its sender at once",
	/* The kernel gives a process's memory back before it closes its sockets: not too much. */
	.args = {MESSAGES("4M")},
	.script = "1500 process 1 kill",
	.tail_ms = 10000,
	.fate = DRILL_BEREAVED,
	.error_max_ms = 100,
	.says = "its socket is closed and another one refused",
    },
    {
	.name = "peer-frozen",
	.proves = "a peer that stands still for 3.5 s is waited for",
	.args = {BOTH_RAILS},
	.script = "1500 process 1 stop\n5000 process 1 continue",
	.tail_ms = 3000,
	.switches_max = -1,
	.stall_min_ms = 2300,
	.stall_max_ms = 6000,
    },
    {
	.name = "peer-frozen-for-a-minute",
	.proves = "a peer that stands still for longer than any timer of the kernel is waited for",
	.args = {BOTH_RAILS, "--timeout", "100"},
	.script = "1500 process 1 stop\n61500 process 1 continue",
	.tail_ms = 3000,
	.switches_max = -1,
	.stall_min_ms = 58000,
	.stall_max_ms = 64000,
    },
    {
	.name = "backup-disabled",
	.proves = "with HA_NCCL_ENABLE_BACKUP=0 a dead link is an error as soon as the queue pair "
		  "gives up",
	.env = {"HA_NCCL_ENABLE_BACKUP=0", "HA_NCCL_QP_TIMEOUT=14"},
	.args = {BOTH_RAILS},
	.script = "1500 link 0 0 down",
	.tail_ms = 10000,
	.fate = DRILL_FAILS,
	.error_max_ms = 3000,
	.says = "port down|completion with status 12",
    },
    {
	.name = "demo",
	.proves = "what scripts/demo shows: one rail cut and mended, then the other",
	.args = {"--op", "allreduce", "--sizes", "4M", "-C", "2"},
	.script = "2500 cut 0\n5500 cut 0 --heal\n8500 cut 1\n11500 cut 1 --heal",
	.tail_ms = 2500,
	.switches_min = 8,
	.switches_max = -1,
	.reasons = "heartbeats lost|error completion",
	.stall_min_ms = INQUIRY_MIN_MS,
	.stall_max_ms = 1200,
    },
    {
	.name = "demo-rails",
	.proves = "what scripts/demo rails shows: of two rails that carry together one is cut, and "
		  "then its port is down; the other carries on, and no connection fails over",
	.fabric = {"--rail-rate", "2,2", "--pace"},
	.env = {"HA_NCCL_RAILS=sim0+sim1"},
	.args = {"--op", "allreduce", "--sizes", "16M", "-C", "2"},
	.script = "2500 cut 1\n5500 cut 1 --heal\n8500 link 0 1 down\n11500 link 0 1 up",
	.tail_ms = 2500,
	.sheds_min = 16, /* four connections at both ends, twice */
	.stall_max_ms = 300,
	.samples_rails = true,
    },
    {
	.name = "control-rail",
	.proves =
	    "the rail of a bundle that everything else goes over is cut, and then the port of the "
	    "one that took its place is down: no connection fails over",
	.fabric = {"--rail-rate", "2,2", "--pace"},
	.env = {"HA_NCCL_RAILS=sim0+sim1"},
	.args = {"--op", "allreduce", "--sizes", "16M", "-C", "2"},
	.script = "2500 cut 0\n5500 cut 0 --heal\n8500 link 0 1 down\n11500 link 0 1 up",
	.tail_ms = 2500,
	.sheds_min = 16, /* four connections at both ends, twice */
	.stall_max_ms = 300,
    },
    {
	.name = "drain",
	.proves =
	    "a port that was drained can be pulled: nothing runs over it, and nothing fails over",
	.args = {ON_RAIL_ZERO},
	.script = "800 operator 0 failover --port sim0:1\n"
		  "1000 idle 0 700\n"
		  "1800 operator 0 failback --port sim0:1\n"
		  "2300 operator 0 failover --port sim0:1\n"
		  "2500 idle 0 300\n"
		  "2900 link 0 0 down\n"
		  "3300 operator 0 refused failover --port sim1:1\n"
		  "3600 link 0 0 up",
	.switches_min = 24, /* four connections at both ends: there, back, there; and no more */
	.switches_max = 24,
	.reasons = "asked for by the operator",
	.stall_max_ms = 300,
	.ends_on_rail = 1 + 1,
    },
    {
	.name = "drain-both-hosts",
	.proves =
	    "both hosts are drained, one after the other, and what is left fails: the drained port "
	    "is the last resort, for as long as it has to be",
	.args = {ON_RAIL_ZERO},
	.script = "800 operator 0 failover --port sim0:1\n"
		  "1600 operator 1 failover --port sim1:1\n"
		  "2400 link 0 1 down\n"
		  "3400 link 0 1 up",
	.tail_ms = 2500,
	.switches_min = 24,
	.switches_max = -1,
	.reasons = "asked for by the operator",
	.stall_max_ms = 1000,
    },
    CELLS("own-send-queue-breaks", "a send queue in ERR costs milliseconds and no data",
	  ARGS(BOTH_RAILS), "err host=0 op=write minlen=1000 nth=50", 500),
    CELLS("peers-receive-queue-breaks", "so does a peer's receive queue in ERR", ARGS(BOTH_RAILS),
	  "err dir=rx host=1 op=write minlen=1000 nth=50", 500),
    CELLS("receive-queue-breaks-in-silence-64m",
	  "so does one that nobody is told of, in the middle of 64 MiB", ARGS(MESSAGES("64M")),
	  "err=silent dir=rx host=1 op=write minlen=1000 nth=2000", 1500),
    CELLS("receive-queue-breaks-in-silence-256k", "or of 256 KiB", ARGS(MESSAGES("256K")),
	  "err=silent dir=rx host=1 op=write minlen=1000 nth=30", 1500),
    {
	.name = "healthy",
	.proves = "nothing happens where nothing is broken",
	.args = {BOTH_RAILS},
	.script = "2000 fault delay=0ns count=1",
	.switches_max = 0,
	.stall_max_ms = 300,
    },
};

const int ndrills = (int)(sizeof(drills) / sizeof(drills[0]));
