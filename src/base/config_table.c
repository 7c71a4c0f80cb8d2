/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every environment variable the plugin reads. To add one: a field in struct ha_config, a row
 * here, and `ninja update-docs`.
 */
#include "base/config.h"

#include <limits.h>
#include <sys/socket.h>

static const struct ha_config_choice completion_modes[] = {
    {"rc", HA_COMPLETION_RC},
    {"e2e", HA_COMPLETION_E2E},
    {NULL, 0},
};

static const struct ha_config_choice auth_modes[] = {
    {"off", HA_AUTH_OFF},
    {"if-key", HA_AUTH_IF_KEY},
    {"required", HA_AUTH_REQUIRED},
    {NULL, 0},
};

static const struct ha_config_choice rail_modes[] = {
    {"adaptive", HA_RAIL_MODE_ADAPTIVE},
    {"static", HA_RAIL_MODE_STATIC},
    {"agent", HA_RAIL_MODE_AGENT},
    {"island", HA_RAIL_MODE_ISLAND},
    {NULL, 0},
};

static const struct ha_config_choice mpib_modes[] = {
    {"0", HA_RAIL_MODE_ISLAND},
    {"1", HA_RAIL_MODE_AGENT},
    {NULL, 0},
};

static const struct ha_config_choice address_families[] = {
    {"AF_INET", AF_INET},
    {"AF_INET6", AF_INET6},
    {NULL, 0},
};

static const struct ha_config_choice debug_levels[] = {
    {"NONE", HA_NCCL_DEBUG_NONE},
    {"VERSION", HA_NCCL_DEBUG_VERSION},
    {"WARN", HA_NCCL_DEBUG_WARN},
    {"INFO", HA_NCCL_DEBUG_INFO},
    {"ABORT", HA_NCCL_DEBUG_ABORT},
    {"TRACE", HA_NCCL_DEBUG_TRACE},
    {NULL, 0},
};

static const struct ha_config_choice inc_fallbacks[] = {
    {"hosts", HA_INC_FALLBACK_HOSTS},
    {"none", HA_INC_FALLBACK_NONE},
    {NULL, 0},
};

#define FIELD(f)     .offset = offsetof(struct ha_config, f)
#define BOOL(f, def) .type = HA_TYPE_BOOL, FIELD(f), .default_value = (def), .min = 0, .max = 1
#define INT(f, def, lo, hi)                                                                        \
	.type = HA_TYPE_INT, FIELD(f), .default_value = (def), .min = (lo), .max = (hi)
#define CHOICE(f, list, def)                                                                       \
	.type = HA_TYPE_CHOICE, FIELD(f), .choices = (list), .default_value = (def)
#define STRING(f) .type = HA_TYPE_STRING, FIELD(f)
#define CIDR(f)	  .type = HA_TYPE_CIDR, FIELD(f)

/* clang-format off */
const struct ha_config_var ha_config_vars[] = {
	/* ---- switches ---- */
	{"HA_NCCL_DISABLE", .group = HA_GROUP_SWITCH, BOOL(disable, 0),
	 .help = "1 makes the plugin's init fail, so that NCCL uses its next network: the kill switch."},
	{"HA_NCCL_ENABLE_BACKUP", .group = HA_GROUP_SWITCH, BOOL(enable_backup, 1),
	 .help = "0 builds no standby paths: connections have their primary path only."},
	{"HA_NCCL_GIN", .group = HA_GROUP_SWITCH, BOOL(gin, 0),
	 .help = "1 offers NCCL 2.28.7 to 2.29.3 puts and signals from kernels (GIN, by NCCL's proxy) through this plugin; 0 leaves them to NCCL. The same on all ranks."},

	{"HA_NCCL_INC", .group = HA_GROUP_SWITCH, BOOL(inc, 0),
	 .help = "1 offers NCCL all-reduces that switches add up, as its collNet, which it uses with NCCL_COLLNET_ENABLE=1; 0 offers none. The same on all ranks."},

	/* ---- who may take part ---- */
	{"HA_NCCL_AUTH", .group = HA_GROUP_SECURITY, CHOICE(auth, auth_modes, HA_AUTH_IF_KEY),
	 .help = "Whether peers must prove that they have the job's key: never (off), where this process has one (if-key), or always, so that init fails without one (required)."},
	{"HA_NCCL_JOB_KEY_FILE", .group = HA_GROUP_SECURITY, STRING(job_key_file),
	 .default_text = "none",
	 .help = "File with the job's key, 32 raw bytes: a regular file of the job's user or of root, without permissions for anybody else."},
	{"HA_NCCL_JOB_KEY_FD", .group = HA_GROUP_SECURITY, INT(job_key_fd, -1, 3, INT_MAX),
	 .default_text = "none",
	 .help = "Inherited descriptor of a file or pipe with the job's key instead: read once, then closed."},

	/* ---- failure detection and recovery ---- */
	{"HA_NCCL_HEARTBEAT_MS", .group = HA_GROUP_RECOVERY, INT(heartbeat_ms, 200, 1, 60000),
	 .help = "Interval of the liveness heartbeats; three silent ones declare a path dead, ten "
		 "(two seconds at least) if the peer answers over no other port either."},
	{"HA_NCCL_STALL_MS", .group = HA_GROUP_RECOVERY, INT(stall_ms, 10, 0, 60000),
	 .help = "Traffic that stands still for this long has its path asked in quick succession; four times that without any answer declare it dead while the peer answers over other ports. 0 leaves it to the heartbeats."},
	{"HA_NCCL_RTO_MS", .group = HA_GROUP_RECOVERY, INT(rto_ms, 1000, 1, 600000),
	 .help = "Soft timeout: a posted request without a completion for this long fails its path."},
	{"HA_NCCL_MAX_RETRIES", .group = HA_GROUP_RECOVERY, INT(max_retries, -1, 1, 1000000),
	 .default_text = "not set",
	 .help = "With no path left, keep trying for this many times HA_NCCL_RTO_MS; HA_NCCL_OUTAGE_MS comes first."},
	{"HA_NCCL_OUTAGE_MS", .group = HA_GROUP_RECOVERY, INT(outage_ms, 0, 0, INT_MAX),
	 .default_text = "0 (60000, or longer if NCCL's own transport would wait longer)",
	 .help = "With no path left, keep trying for this long before the error is reported."},
	{"HA_NCCL_ENABLE_FAILBACK", .group = HA_GROUP_RECOVERY, BOOL(enable_failback, 0),
	 .help = "1 returns a connection to its primary path once that is healthy again."},
	{"HA_NCCL_COMPLETION", .group = HA_GROUP_RECOVERY,
	 CHOICE(completion, completion_modes, HA_COMPLETION_RC),
	 .help = "When a send completes: on the hardware's acknowledgement (rc) or when the receiver's software has the message as well, or a copy of it is kept until then (e2e)."},

	/* ---- progress ---- */
	{"HA_NCCL_USE_PROGRESS_THREAD", .group = HA_GROUP_PROGRESS, INT(use_progress_thread, HA_POLLS_IDLE, HA_POLLS_NONE, HA_POLLS_ALL),
	 .help = "Who takes completions: NCCL's own calls, and the background thread where they do not (1), they alone (0), or a thread that polls all the time and needs a processor of its own (2)."},
	{"HA_NCCL_PROGRESS_CPU", .group = HA_GROUP_PROGRESS, INT(progress_cpu, -1, 0, 1023),
	 .default_text = "any",
	 .help = "The processor that the polling thread of HA_NCCL_USE_PROGRESS_THREAD=2 stays on."},
	{"HA_NCCL_POLL_BATCH", .group = HA_GROUP_PROGRESS, INT(poll_batch, 32, 1, 256),
	 .help = "Completions the progress thread takes from a queue at a time."},
	{"HA_NCCL_IDLE_SPIN_THRESHOLD", .group = HA_GROUP_PROGRESS,
	 INT(idle_spin_threshold, 1000, 0, 100000000),
	 .help = "Empty polls after which the progress thread sleeps."},
	{"HA_NCCL_POLL_STANDBY_INTERVAL", .group = HA_GROUP_PROGRESS,
	 INT(poll_standby_interval, 100, 1, 1000000),
	 .help = "Polls of the active path for each poll of a standby path."},
	{"HA_NCCL_TEST_MAX_POLL", .group = HA_GROUP_PROGRESS, INT(test_max_poll, 32, 1, 1024),
	 .help = "Most completions one call of test handles, which bounds its time."},
	{"HA_NCCL_LATENCY_MS", .group = HA_GROUP_PROGRESS, INT(latency_ms, 0, 0, 60000),
	 .help = "Every so many ms at most, each queue pair of a path in use is timed, from a post to its completion; the log has percentiles when the path ends. 0 times none."},

	/* ---- queue pairs ---- */
	{"HA_NCCL_QP_TIMEOUT", .group = HA_GROUP_QP, INT(qp_timeout, 14, 1, 31),
	 .help = "Hardware retransmission timeout, 4.096 µs × 2^value; NCCL_IB_TIMEOUT and HA_NCCL_FORCE_IB_TIMEOUT come first."},
	{"HA_NCCL_QP_RETRY_CNT", .group = HA_GROUP_QP, INT(qp_retry_cnt, 7, 0, 7),
	 .help = "Hardware retransmissions before a queue pair fails; NCCL_IB_RETRY_CNT comes first."},
	{"HA_NCCL_FORCE_IB_TIMEOUT", .group = HA_GROUP_QP, INT(force_ib_timeout, -1, 1, 31),
	 .default_text = "not set",
	 .help = "Hardware retransmission timeout that wins over NCCL_IB_TIMEOUT."},

	/* ---- several ports as one device ---- */
	{"HA_NCCL_RAILS", .group = HA_GROUP_RAILS, STRING(rails), .default_text = "none",
	 .help = "Ports that NCCL gets as one device, rail 0 first: NAME[:PORT]+NAME[:PORT], 2 to 4 of them; further bundles after commas. nccl: NCCL fuses ports as NCCL_NET_MERGE_LEVEL and NCCL_NET_FORCE_MERGE say. It needs HA_NCCL_ENABLE_BACKUP=1."},
	{"MPIB_HCA_SOUT", .group = HA_GROUP_RAILS, STRING(mpib_hca_sout), .default_text = "none",
	 .alias = "HA_NCCL_RAILS", .help = "Rail 0 of a bundle of two ports."},
	{"MPIB_HCA_SUP", .group = HA_GROUP_RAILS, STRING(mpib_hca_sup), .default_text = "none",
	 .alias = "HA_NCCL_RAILS", .help = "Rail 1 of it."},
	{"HA_NCCL_RAIL_MODE", .group = HA_GROUP_RAILS,
	 CHOICE(rail_mode, rail_modes, HA_RAIL_MODE_ADAPTIVE),
	 .help = "Who says what part of a large message each rail gets: adaptive, each sender, by what rails carry; static, the speeds of the ports; either way HA_NCCL_RAIL_SHARE where it is set. agent: an agent of this host (docs/rails-agent.md), and islands while there is none. island: everything over one rail, the last one within an island and the first one beyond."},
	{"MPIB_MODE", .group = HA_GROUP_RAILS, CHOICE(mpib_mode, mpib_modes, -1),
	 .default_text = "0 with MPIB_HCA_SOUT",
	 .alias = "HA_NCCL_RAIL_MODE", .help = "0 is island, 1 is agent."},
	{"HA_NCCL_RAIL_SHARE", .group = HA_GROUP_RAILS, STRING(rail_share),
	 .default_text = "what each carries",
	 .help = "Shares of large messages by rail, for all bundles, such as 3,1: numbers from 0 to 1024, of which only the ratio matters. Not set: as HA_NCCL_RAIL_MODE says."},
	{"HA_NCCL_RAIL_QPS", .group = HA_GROUP_RAILS, STRING(rail_qps),
	 .default_text = "NCCL_IB_QPS_PER_CONNECTION",
	 .help = "Queue pairs that a path on each rail of a bundle has, rail 0's first, such as 2,4: numbers from 1 to 16, which messages take in turn. Rails without a number have NCCL_IB_QPS_PER_CONNECTION, and a bundle by MPIB_HCA_SOUT and MPIB_HCA_SUP 2,4 where neither is set. The sender of a connection says it for both ends."},
	{"MPIB_SOUT_QP", .group = HA_GROUP_RAILS, INT(mpib_sout_qp, -1, 1, 16), .default_text = "not set",
	 .alias = "HA_NCCL_RAIL_QPS", .help = "Rail 0's number."},
	{"MPIB_SUP_QP", .group = HA_GROUP_RAILS, INT(mpib_sup_qp, -1, 1, 16), .default_text = "not set",
	 .alias = "HA_NCCL_RAIL_QPS", .help = "Rail 1's."},
	{"HA_NCCL_STRIPE_MIN", .group = HA_GROUP_RAILS, INT(stripe_min, 65536, 16384, 1048576),
	 .help = "So many bytes are worth a stripe of their own: messages of twice as many are cut over the rails, from a quarter of them on they go over one rail each, in turns, and smaller ones all over one rail. With HA_NCCL_RAIL_MODE=agent what the agent says holds for every size, but between islands for more than so many bytes."},
	{"HA_NCCL_ISLAND", .group = HA_GROUP_RAILS, STRING(island), .default_text = "24",
	 .help = "Whose second rails reach each other, by the addresses of the first: so many bits of IPv4 are alike, or RANGE=NAME[,RANGE=NAME...], or @FILE of lines RANGE NAME. For HA_NCCL_RAIL_MODE=island and agent."},
	{"MPIB_ISLAND_PREFIX_LEN", .group = HA_GROUP_RAILS, INT(mpib_island_prefix_len, -1, 1, 32),
	 .default_text = "not set",
	 .alias = "HA_NCCL_ISLAND", .help = "So many bits of IPv4 are alike."},
	{"HA_NCCL_AGENT_DIR", .group = HA_GROUP_RAILS, STRING(agent_dir), .default_text = "/tmp/mpib",
	 .help = "Where the agent has its file of hints and its socket. For HA_NCCL_RAIL_MODE=agent."},
	{"MPIB_AGENT_TAG", .group = HA_GROUP_RAILS, STRING(mpib_agent_tag), .default_text = "none",
	 .alias = "HA_NCCL_AGENT_DIR", .help = "TAG is the directory /tmp/mpib/TAG."},
	{"HA_NCCL_AGENT_STALE_MS", .group = HA_GROUP_RAILS, INT(agent_stale_ms, 3000, 500, 3600000),
	 .help = "So long after an agent was last there its hints are followed."},

	/* ---- all-reduces in the network ---- */
	{"HA_NCCL_INC_CONTROLLER", .group = HA_GROUP_INC, STRING(inc_controller), .default_text = "none",
	 .help = "Where nccl-ha-ctrld listens, HOST:PORT. Without it every group is refused, and NCCL uses its own all-reduces."},
	{"HA_NCCL_INC_KEY_FILE", .group = HA_GROUP_INC, STRING(inc_key_file), .default_text = "none",
	 .help = "File with the site's key, 32 raw bytes, as HA_NCCL_JOB_KEY_FILE: the one that the controller and the switches have."},
	{"HA_NCCL_INC_HOST", .group = HA_GROUP_INC, STRING(inc_host),
	 .default_text = "the host's name up to its first dot",
	 .help = "This host's name in the controller's topology; its NICs are those that verbs name."},
	{"HA_NCCL_INC_LABEL", .group = HA_GROUP_INC, STRING(inc_label), .default_text = "none",
	 .help = "Label of the job, where the topology has quotas."},
	{"HA_NCCL_INC_MIN_RANKS", .group = HA_GROUP_INC, INT(inc_min_ranks, 3, 1, 4096),
	 .help = "Groups of fewer ranks are refused: two gain nothing."},
	{"HA_NCCL_INC_FALLBACK", .group = HA_GROUP_INC,
	 CHOICE(inc_fallback, inc_fallbacks, HA_INC_FALLBACK_HOSTS),
	 .help = "When no switch is left hosts add for each other (hosts; groups of up to 32 ranks), or all-reduces end with an error (none). Rank 0's holds for all."},
	{"HA_NCCL_INC_REPRODUCIBLE", .group = HA_GROUP_INC, BOOL(inc_reproducible, 0),
	 .help = "1 asks for plans of which every one gives the same bits: in each tree one switch adds all ranks at once, of which there are 32 at most. A group without such a plan is refused. Rank 0's holds for all."},
	{"HA_NCCL_INC_CONNECT_MS", .group = HA_GROUP_INC, INT(inc_connect_ms, 10000, 1000, 600000),
	 .help = "Until all ranks of a group have to be there and have heard of its plan; else all are refused."},
	{"HA_NCCL_INC_JOIN_MS", .group = HA_GROUP_INC, INT(inc_join_ms, 2000, 10, 600000),
	 .help = "Until the switches of a plan, or the other hosts, have to have answered; else the next plan is tried."},
	{"HA_NCCL_INC_RTO_MS", .group = HA_GROUP_INC, INT(inc_rto_ms, 1000, 10, 600000),
	 .help = "A switch that gives no result for so long, although all ranks wait for it, is given up."},
	{"HA_NCCL_INC_FAILBACK_MS", .group = HA_GROUP_INC, INT(inc_failback_ms, 1000, 0, 60000),
	 .help = "A group that goes by another way than its plan's lanes asks after so long whether their switches are there, after each time that was for nothing twice as long, and goes back to them. 0: never. Rank 0's holds for all. After as long a rank goes back to a better port that works again."},
	{"HA_NCCL_INC_UNIT", .group = HA_GROUP_INC, INT(inc_unit, 65536, 64, 1048576),
	 .help = "Bytes that switches add at a time, rounded down to a multiple of 64. Rank 0's holds for all."},
	{"HA_NCCL_INC_WINDOW", .group = HA_GROUP_INC, INT(inc_window, 16, 1, 32),
	 .help = "Units that are under way at a time. Rank 0's holds for all."},
	{"HA_NCCL_INC_COPIES", .group = HA_GROUP_INC, INT(inc_copies, 16, 0, 64),
	 .help = "All-reduces of one unit at most that are complete before all ranks have the result: so many are kept for those that lack it."},

	/* ---- resource budget ---- */
	{"HA_NCCL_EXPECTED_CHANNELS", .group = HA_GROUP_BUDGET, INT(expected_channels, 16, 1, 1024),
	 .help = "Channels NCCL is expected to open at once; divides the budget behind maxComms."},
	{"HA_NCCL_WR_PER_CONN", .group = HA_GROUP_BUDGET, INT(wr_per_conn, 64, 32, 4096),
	 .help = "Work requests in flight per connection that the budget behind maxComms allows for."},
	{"HA_NCCL_MAX_RECVS", .group = HA_GROUP_BUDGET, INT(max_recvs, 8, 1, 8),
	 .help = "Most receives NCCL may group into one request."},

	/* ---- diagnostics ---- */
	{"HA_NCCL_DEBUG", .group = HA_GROUP_DIAGNOSTICS, INT(debug, 0, 0, 3),
	 .help = "Detail of the plugin's own trace lines; 0 is none."},
	{"HA_NCCL_STATS", .group = HA_GROUP_DIAGNOSTICS, BOOL(stats, 1),
	 .help = "0 publishes no statistics in shared memory (/dev/shm/nccl-ha-UID/nccl-ha.UID.PID)."},
	{"HA_NCCL_CONTROL", .group = HA_GROUP_DIAGNOSTICS, BOOL(control, 1),
	 .help = "0 opens no socket for nccl-ha failover and failback (/dev/shm/nccl-ha-UID/nccl-ha.UID.PID.control); it also needs HA_NCCL_STATS=1."},
	{"HA_NCCL_EVENT_LOG", .group = HA_GROUP_DIAGNOSTICS, STRING(event_log),
	 .default_text = "none",
	 .help = "File that gets one JSON object a line for each failure, switch and recovery; %p in its name is the process id, %h the host, %j the job."},
	{"HA_NCCL_EVENT_LOG_MB", .group = HA_GROUP_DIAGNOSTICS, INT(event_log_mb, 100, 0, 1048576),
	 .help = "MiB to which that file may grow; 0 is any. Events beyond are left out until it is rotated."},

	/* ---- NCCL's own ---- */
	{"NCCL_IB_DISABLE", .group = HA_GROUP_NCCL, BOOL(ib_disable, 0),
	 .help = "1 uses no RDMA device: the plugin reports none and NCCL uses its next network."},
	{"NCCL_IB_HCA", .group = HA_GROUP_NCCL, STRING(ib_hca), .default_text = "every device",
	 .help = "Devices to use: a list of name prefixes, each with an optional :PORT, and for NCCL :RAIL and :PLANE behind it; = in front asks for whole names, ^ excludes."},
	{"NCCL_IB_GID_INDEX", .group = HA_GROUP_NCCL, INT(ib_gid_index, -1, -1, 1023),
	 .default_text = "-1 (chosen)",
	 .help = "GID table entry to use on every RoCE port."},
	{"NCCL_IB_ROUTABLE_FLID_GID_INDEX", .group = HA_GROUP_NCCL,
	 INT(ib_routable_flid_gid_index, 1, 0, 1023),
	 .help = "GID table entry of InfiniBand ports that routers know: used where it has a FLID, else entry 0."},
	{"NCCL_IB_ROCE_VERSION_NUM", .group = HA_GROUP_NCCL, INT(ib_roce_version_num, 2, 1, 2),
	 .help = "RoCE version preferred when the GID is chosen."},
	{"NCCL_IB_ADDR_FAMILY", .group = HA_GROUP_NCCL,
	 CHOICE(ib_addr_family, address_families, AF_INET),
	 .help = "Address family preferred when the GID is chosen."},
	{"NCCL_IB_ADDR_RANGE", .group = HA_GROUP_NCCL, CIDR(ib_addr_range), .default_text = "any",
	 .help = "Address range (ADDRESS/BITS) preferred when the GID is chosen."},
	{"NCCL_IB_TIMEOUT", .group = HA_GROUP_NCCL, INT(ib_timeout, -1, 0, 31),
	 .default_text = "not set",
	 .help = "Hardware retransmission timeout, 4.096 µs × 2^value, 0 for none; wins over HA_NCCL_QP_TIMEOUT."},
	{"NCCL_IB_RETRY_CNT", .group = HA_GROUP_NCCL, INT(ib_retry_cnt, -1, 0, 7),
	 .default_text = "not set",
	 .help = "Hardware retransmissions before a queue pair fails; wins over HA_NCCL_QP_RETRY_CNT."},
	{"NCCL_IB_PKEY", .group = HA_GROUP_NCCL, INT(ib_pkey, 0, 0, 65535),
	 .help = "Index into the partition key table of the first port; the other ports use the same partition, at whatever index."},
	{"NCCL_IB_SL", .group = HA_GROUP_NCCL, INT(ib_sl, -1, -1, 15),
	 .default_text = "-1 (the communicator's traffic class, else 0)",
	 .help = "InfiniBand service level."},
	{"NCCL_IB_TC", .group = HA_GROUP_NCCL, INT(ib_tc, -1, -1, 255),
	 .default_text = "-1 (the communicator's traffic class, else 0)",
	 .help = "RoCE traffic class."},
	{"NCCL_IB_ECE_ENABLE", .group = HA_GROUP_NCCL, BOOL(ib_ece_enable, 1),
	 .help = "Whether NICs of one vendor agree on their own options (ECE) when queue pairs are connected."},
	{"NCCL_IB_AR_THRESHOLD", .group = HA_GROUP_NCCL, INT(ib_ar_threshold, 8192, 0, INT_MAX),
	 .help = "With adaptive routing, messages above this many bytes send data and notice apart."},
	{"NCCL_IB_ADAPTIVE_ROUTING", .group = HA_GROUP_NCCL, INT(ib_adaptive_routing, -2, -2, 1),
	 .default_text = "-2 (1 on InfiniBand, 0 on RoCE)",
	 .help = "Whether the fabric may reorder packets of one queue pair (1) or not (0)."},
	{"NCCL_IB_USE_INLINE", .group = HA_GROUP_NCCL, BOOL(ib_use_inline, 1),
	 .help = "0 never puts small payloads into the work request itself; the default does where they fit."},
	{"NCCL_IB_PCI_RELAXED_ORDERING", .group = HA_GROUP_NCCL,
	 INT(ib_pci_relaxed_ordering, 2, 0, 2),
	 .help = "PCI relaxed ordering of registered memory: 0 off, 1 on, 2 on where the device can."},
	{"NCCL_IB_QPS_PER_CONNECTION", .group = HA_GROUP_NCCL, INT(ib_qps_per_connection, 1, 1, 16),
	 .help = "Queue pairs per connection."},
	{"NCCL_IB_SPLIT_DATA_ON_QPS", .group = HA_GROUP_NCCL, BOOL(ib_split_data_on_qps, 0),
	 .help = "1 spreads each message over all queue pairs of the connection, 0 takes them in turn."},
	{"NCCL_SOCKET_IFNAME", .group = HA_GROUP_NCCL, STRING(socket_ifname),
	 .default_text = "chosen: if possible one that does not go over the fabric",
	 .help = "Interface for connection set-up: a list of name prefixes; = in front asks for whole names, ^ excludes."},
	{"NCCL_SOCKET_FAMILY", .group = HA_GROUP_NCCL,
	 CHOICE(socket_family, address_families, AF_UNSPEC), .default_text = "any",
	 .help = "Address family for connection set-up."},
	{"NCCL_DEBUG", .group = HA_GROUP_NCCL,
	 CHOICE(nccl_debug, debug_levels, HA_NCCL_DEBUG_NONE),
	 .help = "Level of NCCL's log, which the plugin's lines go to."},
	{"NCCL_DEBUG_SUBSYS", .group = HA_GROUP_NCCL, STRING(nccl_debug_subsys),
	 .default_text = "NCCL's",
	 .help = "Subsystems in NCCL's log; the plugin's lines are in INIT, NET and ENV."},
};
/* clang-format on */

const size_t ha_config_nvars = sizeof ha_config_vars / sizeof ha_config_vars[0];

_Static_assert(sizeof ha_config_vars / sizeof ha_config_vars[0] <= HA_CONFIG_MAX_VARS,
	       "raise HA_CONFIG_MAX_VARS");
