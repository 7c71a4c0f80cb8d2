/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of a process that uses the plugin: the layout of the shared-memory file that the
 * plugin writes and that `nccl-ha` (or any other program of the same user) reads.
 *
 * The file is /dev/shm/nccl-ha-UID/nccl-ha.UID.PID, mode 0600 in a folder of mode 0700 that belongs
 * to the same user; where another process has that name already (two containers that share /dev/shm
 * may have equal PIDs) a suffix .1 … .9 follows. Where the folder cannot be made, or is somebody
 * else's, it is in $XDG_RUNTIME_DIR. A container may know the user by another number than a reader
 * does: whose a file is says its owner. (Before there were folders it was
 * /dev/shm/nccl-ha.UID.PID.)
 *
 * The writer never maps it, so cutting it does no harm to the job; readers that map it have to be
 * ready for a SIGBUS. The writer holds
 * flock(LOCK_EX) on it for as long as it lives, so a file that can be locked belongs to a dead
 * process, and the next process of that user that starts removes it.
 *
 * A header, then tables of records: one job record, ports, connections, configuration. Take
 * offsets, sizes and counts from the header, not from these structs: a later version may append
 * fields to a record, and tables to the header. It raises NCCL_HA_STATS_VERSION only if a field
 * changed its meaning or place. A file of an earlier version has a smaller header or smaller
 * records: what they do not reach is not there, and ha_stats_read_* return zeros for it. So new
 * fields mean nothing when they are zero.
 *
 * Each record starts with a sequence number, odd while a write is in progress. To read a record:
 * read the number, the record, the number again, and try once more if it was odd or has changed;
 * give up after some tries, since a writer may have died half way. (struct fields are not atomic;
 * read them as 64-bit words with acquire order, or use ha_stats_read_*.)
 */
#ifndef NCCL_HA_STATS_H
#define NCCL_HA_STATS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_HA_STATS_DIR     "/dev/shm"
#define NCCL_HA_STATS_FOLDER  "nccl-ha-"	  /* then UID */
#define NCCL_HA_STATS_PREFIX  "nccl-ha."	  /* then UID.PID */
#define NCCL_HA_STATS_MAGIC   0x5453414843434eull /* "NCCHAST" */
#define NCCL_HA_STATS_VERSION 2

/*
 * A histogram of times: bucket 0 counts zeros, bucket i the times of 2^(i-1) to 2^i - 1 ns, the
 * last one and above.
 */
#define NCCL_HA_HISTOGRAM_BUCKETS 64

struct nccl_ha_histogram {
	uint64_t count[NCCL_HA_HISTOGRAM_BUCKETS];
	uint64_t sum_ns;
	uint64_t max_ns;
};

/* No file has more records, nor is longer: one that says so was not written by the plugin. */
#define NCCL_HA_STATS_PORTS_MAX	 64
#define NCCL_HA_STATS_CONNS_MAX	 1024
#define NCCL_HA_STATS_CONFIG_MAX 256
#define NCCL_HA_STATS_BYTES_MAX	 (16u << 20)

struct nccl_ha_stats_table {
	uint64_t offset; /* of the first record, from the start of the file */
	uint32_t record_size;
	uint32_t count;
};

struct nccl_ha_stats_header {
	uint64_t magic; /* written last: who sees it sees the rest */
	uint32_t version;
	uint32_t header_size;
	uint64_t file_size;
	struct nccl_ha_stats_table job, ports, conns;
	struct nccl_ha_stats_table config; /* appended */
};

/* ---- the job: one record -------------------------------------------------------------------- */

/* Counters as X(name, help), so that tools print each with its meaning. All are totals since the
 * process started, or the connection, unless the text ends in "now". */
#define NCCL_HA_JOB_COUNTERS(X)                                                                    \
	X(connections_open, "Connections open now")                                                \
	X(connections, "Connections opened")                                                       \
	X(connections_failed, "Connections that ended with an error")                              \
	X(records_missed, "Ports and connections without a record here, for want of room")

/* What was said in the peer's name by somebody else, and not believed. Appended. */
#define NCCL_HA_JOB_REFUSED_COUNTERS(X)                                                            \
	X(refused_handshakes, "Connections to a listener that were not the peer's")                \
	X(refused_rejoins,                                                                         \
	  "Attempts to replace a connection's bootstrap socket that were not the peer's")          \
	X(refused_messages,                                                                        \
	  "Messages to a connection that were replayed, altered or not the peer's")                \
	X(refused_heartbeats,                                                                      \
	  "Heartbeats that were altered, without the key's code, or of somebody unknown")

/* Of groups of ranks whose all-reduces switches add up (HA_NCCL_INC=1). Appended. */
#define NCCL_HA_INC_COUNTERS(X)                                                                    \
	X(groups, "Groups whose all-reduces are added in the network now")                         \
	X(groups_alone, "Of these, groups whose hosts add, as no switch is left, now")             \
	X(groups_joined, "Groups that this process came to be in")                                 \
	X(groups_refused, "Groups that were refused, so that NCCL adds up itself")                 \
	X(groups_failed, "Groups that ended with an error")                                        \
	X(all_reduces, "All-reduces done")                                                         \
	X(bytes, "Bytes of their results")                                                         \
	X(epochs, "Times that a group went on by another way")                                     \
	X(units_taken, "Units that were open then and that some rank had, and the others got")     \
	X(units_again, "Units that were under way then from here and were computed again")

#define NCCL_HA_STATS_COUNTER(name, help) uint64_t name;

struct nccl_ha_inc_stats {
	NCCL_HA_INC_COUNTERS(NCCL_HA_STATS_COUNTER)
	struct nccl_ha_histogram pause; /* from a way's end until another one was joined */
};

/* Of a connection. */
#define NCCL_HA_CONN_COUNTERS(X)                                                                   \
	X(messages, "Messages completed")                                                          \
	X(bytes, "Payload bytes of completed messages")                                            \
	X(requests, "Requests started: sends, receives (a group is one), flushes")                 \
	X(flushes, "Flushes completed")                                                            \
	X(not_ready, "Calls answered with \"not now\": no receive posted yet, or no room")         \
	X(work_requests, "Work requests posted to the hardware")                                   \
	X(completions, "Completions taken from the hardware")                                      \
	X(thread_completions, "Of these, taken by the progress thread")                            \
	X(stale_completions, "Completions of an earlier incarnation, dropped")                     \
	X(failovers, "Switches to another path")                                                   \
	X(failbacks, "Of these, back to the preferred path")                                       \
	X(false_alarms, "Of these, from a path that was found healthy right after")                \
	X(suspects, "Times a sender told its receiver that a path failed")                         \
	X(outages, "Times no path was left")                                                       \
	X(rebuilds, "Paths built anew")                                                            \
	X(fences_destroyed, "Paths whose queue pairs were destroyed since they did not drain")     \
	X(completed_without_resend, "Messages in flight at a switch that had arrived already")     \
	X(replayed_messages, "Messages in flight at a switch that were sent or asked for again")   \
	X(replayed_bytes, "Their payload bytes")                                                   \
	X(control_sent, "Control messages sent")                                                   \
	X(control_received, "Control messages received")                                           \
	X(control_resent, "Control messages sent again for want of an answer")                     \
	X(control_stale, "Control messages received that said nothing new")

/* What connections that are closed leave behind, so that sums over a process only ever grow. */
struct nccl_ha_closed_stats {
	NCCL_HA_CONN_COUNTERS(NCCL_HA_STATS_COUNTER)
	struct nccl_ha_histogram detection, blackout;
};

struct nccl_ha_job_stats {
	uint64_t started_ns; /* CLOCK_REALTIME when the plugin started */
	uint32_t pid;	     /* in the process's own PID namespace */
	uint32_t uid;
	int32_t rank; /* as the launcher's environment says; -1 unknown */
	uint32_t reserved;
	char job_id[64]; /* as the launcher's environment says; empty unknown */
	char host[64];
	char program[64];
	char plugin_version[32];
	NCCL_HA_JOB_COUNTERS(NCCL_HA_STATS_COUNTER)
	/* Appended. */
	char event_log[1024]; /* absolute path of the event log; empty: none, or too long */
	/*
	 * Odd while a connection's record is on its way into `closed`. Who adds up `closed` and the
	 * connections' records has counted each once if this was even before and is the same after.
	 */
	uint64_t closings;
	struct nccl_ha_closed_stats closed;
	NCCL_HA_JOB_REFUSED_COUNTERS(NCCL_HA_STATS_COUNTER)
	struct nccl_ha_inc_stats inc; /* of all groups that the process ever was in */
};

/* ---- ports ---------------------------------------------------------------------------------- */

#define NCCL_HA_PORT_COUNTERS(X)                                                                   \
	X(connections_open, "Connections over this port now")                                      \
	X(port_errors, "Times the port went down")                                                 \
	X(port_recoveries, "Times the port came back")                                             \
	X(address_changes, "Changes of LID or GID")                                                \
	X(device_errors, "Fatal errors of the device")                                             \
	X(heartbeats_sent, "Heartbeats sent")                                                      \
	X(heartbeats_received, "Answers to them")                                                  \
	X(heartbeats_lost, "Heartbeats without an answer in time")                                 \
	X(sessions_up, "Remote ports that answer now")

/* Appended. */
#define NCCL_HA_PORT_MORE_COUNTERS(X)                                                              \
	X(messages, "Messages completed over this port")                                           \
	X(bytes, "Payload bytes of messages completed over this port")                             \
	X(departures, "Connections that left this port for another one")                           \
	X(sessions, "Remote ports that heartbeats go to now")

/* Appended. Of large messages that the rails of a bundle carried together, each a part. */
#define NCCL_HA_PORT_RAIL_COUNTERS(X)                                                              \
	X(stripes, "Parts of messages that this port carried beside other rails")                  \
	X(stripe_bytes, "Payload bytes of these parts")

/* Appended. Of rails that were lost while others of their bundle went on: no switch. */
#define NCCL_HA_PORT_SHED_COUNTERS(X)                                                              \
	X(sheds, "Times a connection lost this port and went on over other rails, without a "      \
		 "switch")                                                                         \
	X(mends, "Of these, times all was sent again that was lost with it")                       \
	X(mended_stripes, "Parts of messages that were sent again then, over another rail")        \
	X(mended_bytes, "Payload bytes of these parts")

/* Appended. Of the port's device: what it does not take back, though it was asked for seconds. */
#define NCCL_HA_PORT_LEAK_COUNTERS(X)                                                              \
	X(leaked_queue_pairs, "Queue pairs that the device refuses to take back, now")             \
	X(leaked_registrations,                                                                    \
	  "Registrations that the device refuses to take back, with the memory they pin, now")     \
	X(leaked_objects,                                                                          \
	  "Other objects that the device refuses to take back: completion queues and their "       \
	  "channels, address handles, protection domains, now")

struct nccl_ha_port_stats {
	uint32_t in_use;
	int32_t
	    device; /* by which connections name it; -1: was down at the start, only a standby */
	char nic[64];
	uint32_t port_num;
	uint32_t link_layer; /* 1 InfiniBand, 2 Ethernet */
	uint32_t state;	     /* as enum ibv_port_state: 1 down, 4 active */
	uint32_t device_fatal;
	uint32_t speed_mbps;
	int32_t gid_index;
	uint32_t lid;
	int32_t numa_node;
	uint64_t guid;
	uint8_t gid[16];
	char pci_path[256]; /* its end, where it is longer */
	NCCL_HA_PORT_COUNTERS(NCCL_HA_STATS_COUNTER)
	struct nccl_ha_histogram heartbeat_rtt; /* round trips, over all remote ports */
	NCCL_HA_PORT_MORE_COUNTERS(NCCL_HA_STATS_COUNTER)
	uint32_t drained; /* the operator wants it left alone (nccl_ha/control.h) */
	/* What NCCL sees: a device of so many ports, of which this is one, 0 the first. */
	uint32_t rails;	     /* 0: NCCL was not told of it, or the plugin is too old to say */
	int32_t nccl_device; /* NCCL's number of that device, where rails is not 0 */
	uint32_t rail;
	NCCL_HA_PORT_RAIL_COUNTERS(NCCL_HA_STATS_COUNTER)
	NCCL_HA_PORT_SHED_COUNTERS(NCCL_HA_STATS_COUNTER)
	NCCL_HA_PORT_LEAK_COUNTERS(NCCL_HA_STATS_COUNTER)
};

/* ---- connections ---------------------------------------------------------------------------- */

/* 1 and 4 are reserved: nothing writes them. */
enum nccl_ha_conn_state {
	NCCL_HA_CONN_ACTIVE = 2,
	NCCL_HA_CONN_ERROR = 3,	       /* the error is latched */
	NCCL_HA_CONN_FAILING_OVER = 5, /* between two paths, or without any */
};

enum nccl_ha_conn_direction { NCCL_HA_CONN_SEND = 1, NCCL_HA_CONN_RECV = 2 };

/* Traffic uses a path in GOOD and SUSPECTED. */
enum nccl_ha_path_health {
	NCCL_HA_PATH_NONE = 0,
	NCCL_HA_PATH_GOOD = 1,
	NCCL_HA_PATH_SUSPECTED = 2,
	NCCL_HA_PATH_FAILED = 3,
	NCCL_HA_PATH_RECOVERING = 4,
};

#define NCCL_HA_MAX_PATHS 4
#define NCCL_HA_MAX_RAILS 4

struct nccl_ha_path_stats {
	uint32_t health;     /* enum nccl_ha_path_health; the rest is 0 for NONE */
	uint32_t generation; /* counts its incarnations from 1 */
	int32_t device;	     /* that of the local port */
	uint32_t port_num;   /* of that port */
	uint64_t peer_guid;  /* of the remote NIC; 0 unknown */
};

/*
 * Marks of the two ports that NCCL asked for, ours and the peer's: what both ends know of them,
 * also while traffic is elsewhere. One that is not set says nothing.
 */
#define NCCL_HA_PREFERRED_KNOWN		 (1u << 0) /* the peer has said which is its own */
#define NCCL_HA_PREFERRED_PORT_DOWN	 (1u << 1) /* ours is of no use: down, or its device is */
#define NCCL_HA_PREFERRED_PEER_PORT_DOWN (1u << 2) /* the peer says so of its own */
#define NCCL_HA_PREFERRED_ANSWERS	 (1u << 3) /* heartbeats between them are answered */
#define NCCL_HA_PREFERRED_SILENT	 (1u << 4) /* they are not */
#define NCCL_HA_PREFERRED_READY		 (1u << 5) /* paths of both are in use, or could be */
#define NCCL_HA_PREFERRED_DRAINED	 (1u << 6) /* an operator wants one of them left alone */

struct nccl_ha_preferred_stats {
	uint32_t marks;	    /* the rest is 0 unless KNOWN */
	int32_t device;	    /* that of our port */
	uint64_t left_ns;   /* CLOCK_REALTIME since when traffic is elsewhere and cannot be there;
			     * 0: it is there, or READY */
	char peer_port[40]; /* "mlx5_0:1", as the peer calls it */
};

/* Of a connection over a bundle: what one rail of ours carries of large messages. */
struct nccl_ha_rail_stats {
	uint32_t share; /* parts of 1024 that a sender gives it; 0: none, or a receiver's */
	uint32_t reserved;
	uint64_t stripes; /* parts of messages that it carried */
	uint64_t bytes;	  /* their payload */
};

/* Of the same rail: how often it was lost while others went on, as NCCL_HA_PORT_SHED_COUNTERS say.
 */
struct nccl_ha_shed_stats {
	NCCL_HA_PORT_SHED_COUNTERS(NCCL_HA_STATS_COUNTER)
};

/*
 * There is no latency of messages here: the data path reads no clock, which costs more than a
 * small message does. nccl-net-perf measures it from outside.
 */
struct nccl_ha_conn_stats {
	uint32_t in_use;
	uint32_t state;	    /* enum nccl_ha_conn_state */
	uint32_t direction; /* enum nccl_ha_conn_direction */
	int32_t device;	    /* that of the active path's local port */
	uint64_t id;	    /* the same at both ends */
	uint64_t opened_ns; /* CLOCK_REALTIME */
	uint32_t qps;
	int32_t error; /* latched result code, 0 none */
	char peer[80]; /* socket address */
	NCCL_HA_CONN_COUNTERS(NCCL_HA_STATS_COUNTER)
	uint32_t epoch; /* of the data: changes with a switch */
	uint32_t active_path;
	struct nccl_ha_path_stats paths[NCCL_HA_MAX_PATHS];
	char last_failover_reason[32]; /* as in the event log; empty: there was none */
	uint64_t last_failover_ns;     /* CLOCK_REALTIME */
	uint64_t last_blackout_ns;     /* 0 unknown */
	/* From the last sign of life of the path that failed to the moment this was noticed, and to
	 * the moment data could flow again. */
	struct nccl_ha_histogram detection;
	struct nccl_ha_histogram blackout;
	/* Appended. */
	uint32_t gpu_proved; /* bit per path: its NIC here has read GPU memory, in reserve */
	uint32_t reserved;
	struct nccl_ha_preferred_stats preferred;
	struct nccl_ha_rail_stats rails[NCCL_HA_MAX_RAILS];
	struct nccl_ha_shed_stats sheds[NCCL_HA_MAX_RAILS];
};

/* ---- configuration -------------------------------------------------------------------------- */

enum nccl_ha_config_origin {
	NCCL_HA_CONFIG_DEFAULT = 1,	/* not set */
	NCCL_HA_CONFIG_ENVIRONMENT = 2, /* set, and used */
	NCCL_HA_CONFIG_INVALID = 3,	/* set to what cannot be used: the default holds */
};

/* A variable as it is in effect. Written once, at the start. */
struct nccl_ha_config_stats {
	uint32_t in_use;
	uint32_t origin; /* enum nccl_ha_config_origin */
	char name[64];
	char value[1024]; /* the way it would be set; empty: nothing */
};

/* As they lie in the file. */
struct nccl_ha_job_record {
	uint64_t seq;
	struct nccl_ha_job_stats stats;
};

struct nccl_ha_port_record {
	uint64_t seq;
	struct nccl_ha_port_stats stats;
};

struct nccl_ha_conn_record {
	uint64_t seq;
	struct nccl_ha_conn_stats stats;
};

struct nccl_ha_config_record {
	uint64_t seq;
	struct nccl_ha_config_stats stats;
};

#ifdef __cplusplus
}
#endif

#endif
