/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: what the environment variables said, checked.
 *
 * One table (config_table.c) holds every variable's name, type, default, range and help line.
 * Parsing, validation, the help of the tools and docs/configuration.md all come from it. A bad
 * value never stops a job: one WARN names the variable, the value and what is used instead.
 *
 * Fields carry the variable's name without the HA_NCCL_ or NCCL_ prefix, in lower case. The
 * struct owns nothing and may be copied. It is written by ha_config_load and read-only after.
 */
#ifndef HA_BASE_CONFIG_H
#define HA_BASE_CONFIG_H

#include "base/cidr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define HA_CONFIG_STRING_MAX 1024 /* with the terminating zero */
#define HA_CONFIG_MAX_VARS   96
#define HA_CONFIG_RAILS	     4 /* of a bundle, at most (device/bundle.h) */

/* Where the value of a variable came from. */
enum ha_config_origin {
	HA_ORIGIN_DEFAULT,     /* not set */
	HA_ORIGIN_ENVIRONMENT, /* set, and used */
	HA_ORIGIN_INVALID,     /* set to something that cannot be used: the default holds */
};

/* HA_NCCL_COMPLETION: when a send is complete. */
enum ha_completion_mode {
	HA_COMPLETION_RC,  /* on the hardware's acknowledgement */
	HA_COMPLETION_E2E, /* when the receiver's software has seen the message, too */
};

/* HA_NCCL_USE_PROGRESS_THREAD: who takes completions beside NCCL's own calls. */
enum ha_polls {
	HA_POLLS_NONE, /* nobody */
	HA_POLLS_IDLE, /* the background thread, where they do not come */
	HA_POLLS_ALL,  /* a thread that does nothing else, in their place */
};

/* HA_NCCL_RAIL_MODE: what part of a large message each rail of a bundle gets. */
enum ha_rail_mode {
	HA_RAIL_MODE_ADAPTIVE, /* HA_NCCL_RAIL_SHARE; without it what senders learn */
	HA_RAIL_MODE_STATIC,   /* HA_NCCL_RAIL_SHARE; without it by the speeds of the ports */
	HA_RAIL_MODE_AGENT,    /* what an agent of the host says; without it by islands */
	HA_RAIL_MODE_ISLAND,   /* all over one rail: the last in an island, the first beyond */
};

/* HA_NCCL_AUTH: whether peers prove that they have the job's key. */
enum ha_auth_mode {
	HA_AUTH_OFF,
	HA_AUTH_IF_KEY,	  /* where this process has one */
	HA_AUTH_REQUIRED, /* and it must have one */
};

/* NCCL_DEBUG, by NCCL's names. */
enum ha_nccl_debug {
	HA_NCCL_DEBUG_NONE,
	HA_NCCL_DEBUG_VERSION,
	HA_NCCL_DEBUG_WARN,
	HA_NCCL_DEBUG_INFO,
	HA_NCCL_DEBUG_ABORT,
	HA_NCCL_DEBUG_TRACE,
};

/* How a group of all-reduces in the network goes on when no switch is left. */
enum ha_inc_fallback { HA_INC_FALLBACK_NONE, HA_INC_FALLBACK_HOSTS };

/* What a byte takes on a link that is slow, or shared by many: 500 Mb/s. Puts of kernels have so
 * much for each beside rto_ms. */
#define HA_SLOW_NS_PER_BYTE 16

struct ha_config {
	/* Switches. */
	bool disable;	    /* HA_NCCL_DISABLE */
	bool enable_backup; /* HA_NCCL_ENABLE_BACKUP */
	bool gin;	    /* HA_NCCL_GIN */
	bool inc;	    /* HA_NCCL_INC */

	/* Who may take part: job_key.h. */
	enum ha_auth_mode auth;
	char job_key_file[HA_CONFIG_STRING_MAX]; /* empty: none */
	int job_key_fd;				 /* -1: none */

	/* Failure detection and recovery. */
	int heartbeat_ms;
	int stall_ms;
	int rto_ms;
	int max_retries; /* -1: not set */
	int outage_ms;	 /* 0: not set; see give_up_ms */
	bool enable_failback;
	enum ha_completion_mode completion;

	/* Progress. */
	int use_progress_thread; /* enum ha_polls */
	int progress_cpu;	 /* -1: any */
	int poll_batch;
	int idle_spin_threshold;
	int poll_standby_interval;
	int test_max_poll;
	int latency_ms; /* 0: off */

	/* Queue pairs. */
	int qp_timeout;	      /* HA_NCCL_QP_TIMEOUT as it was set; see rc_timeout */
	int qp_retry_cnt;     /* HA_NCCL_QP_RETRY_CNT as it was set; see rc_retry_cnt */
	int force_ib_timeout; /* -1: not set */

	/* Several ports as one device (device/bundle.h). */
	char rails[HA_CONFIG_STRING_MAX]; /* HA_NCCL_RAILS, or what its aliases come to; empty: none
					   */
	bool rails_by_alias;		  /* the latter */
	char mpib_hca_sout[HA_CONFIG_STRING_MAX], mpib_hca_sup[HA_CONFIG_STRING_MAX];
	int mpib_mode, mpib_island_prefix_len; /* -1: not set */
	int mpib_sout_qp, mpib_sup_qp;	       /* -1: not set */
	char mpib_agent_tag[HA_CONFIG_STRING_MAX];
	int rail_mode; /* enum ha_rail_mode */
	char rail_share[HA_CONFIG_STRING_MAX];
	char rail_qps[HA_CONFIG_STRING_MAX];  /* HA_NCCL_RAIL_QPS, or what its aliases come to; see
						 nqps_of_rail */
	int stripe_min;			      /* bytes that are worth a stripe of their own */
	char island[HA_CONFIG_STRING_MAX];    /* device/island.h; empty: by default */
	char agent_dir[HA_CONFIG_STRING_MAX]; /* empty: MPIB_AGENT_DIR */
	int agent_stale_ms;

	/* Resource budget. */
	int expected_channels;
	int wr_per_conn;
	int max_recvs;

	/* All-reduces in the network: inc/coll. */
	char inc_controller[HA_CONFIG_STRING_MAX]; /* empty: none */
	char inc_key_file[HA_CONFIG_STRING_MAX];   /* empty: none */
	char inc_host[HA_CONFIG_STRING_MAX];	   /* empty: the host's own name */
	char inc_label[HA_CONFIG_STRING_MAX];	   /* empty: none */
	int inc_min_ranks;
	int inc_unit; /* bytes */
	int inc_window, inc_copies;
	int inc_connect_ms, inc_join_ms, inc_rto_ms, inc_failback_ms;
	enum ha_inc_fallback inc_fallback;

	/* Diagnostics. */
	int debug; /* HA_NCCL_DEBUG: 0 … 3 */
	bool stats;
	bool control;
	bool inc_reproducible;		      /* inc/coll's; here it moves nothing */
	char event_log[HA_CONFIG_STRING_MAX]; /* empty: none */
	int event_log_mb;		      /* 0: any length */

	/* NCCL's own. */
	bool ib_disable;
	char ib_hca[HA_CONFIG_STRING_MAX]; /* empty: every device */
	int ib_gid_index;		   /* -1: chosen */
	int ib_routable_flid_gid_index;
	int ib_roce_version_num;
	int ib_addr_family; /* AF_INET or AF_INET6 */
	struct ha_cidr ib_addr_range;
	int ib_timeout;	  /* -1: not set */
	int ib_retry_cnt; /* -1: not set */
	int ib_pkey;	  /* index into the port's partition key table */
	int ib_sl;	  /* -1: the communicator's traffic class, else 0 */
	int ib_tc;	  /* -1: the communicator's traffic class, else 0 */
	bool ib_ece_enable;
	int ib_ar_threshold;	 /* bytes */
	int ib_adaptive_routing; /* 0, 1; below 0: on for InfiniBand, off for RoCE */
	bool ib_use_inline;
	int ib_pci_relaxed_ordering; /* 0 off, 1 on, 2 where the device can */
	int ib_qps_per_connection;
	bool ib_split_data_on_qps;
	char socket_ifname[HA_CONFIG_STRING_MAX]; /* empty: chosen */
	int socket_family;			  /* AF_UNSPEC: any */
	enum ha_nccl_debug nccl_debug;		  /* NCCL_DEBUG */
	char nccl_debug_subsys[HA_CONFIG_STRING_MAX];

	/*
	 * Worked out from the above.
	 *
	 * Queue pairs of a path on each rail of a bundle; 0: ib_qps_per_connection.
	 */
	uint8_t nqps_of_rail[HA_CONFIG_RAILS];

	/*
	 * What a queue pair gets: HA_NCCL_FORCE_IB_TIMEOUT, else NCCL_IB_TIMEOUT, else
	 * HA_NCCL_QP_TIMEOUT; and NCCL_IB_RETRY_CNT, else HA_NCCL_QP_RETRY_CNT. A site that sets
	 * NCCL's variables for all jobs keeps them; HA_NCCL_FORCE_IB_TIMEOUT overrules the site.
	 */
	int rc_timeout;	  /* the verbs' exponent: 4.096 µs × 2^rc_timeout */
	int rc_retry_cnt; /* 0 … 7 */

	/* How long NCCL's own transport would bear silence with the NCCL_IB_* values:
	 * nccl_window.h. */
	int nccl_window_ms;
	/*
	 * With no path left, so long until the error: outage_ms, else max_retries × rto_ms, else a
	 * minute, or nccl_window_ms where that is longer.
	 */
	int give_up_ms;

	/*
	 * Without failover the failure of a path is that of the connection. So its queue pairs get
	 * at least NCCL's own timeout, and its soft timeout is at least nccl_window_ms, unless a
	 * variable of ours says otherwise. 0: there is no such minimum.
	 */
	int lone_timeout_min; /* exponent, as rc_timeout */
	int lone_rto_min_ms;

	/* enum ha_config_origin by position in the table. */
	uint8_t origin[HA_CONFIG_MAX_VARS];
};

/* getenv has this type. */
typedef char *(*ha_getenv_fn)(const char *name);

/* Fills *config. NULL reads the process's environment. Logs bad values; cannot fail. */
void ha_config_load(struct ha_config *config, ha_getenv_fn getenv_fn);

/* Queue pairs that a path may have, at most. */
int ha_config_most_qps(const struct ha_config *config);

/*
 * One WARN for each HA_NCCL_* or MPIB_* name in environ (NULL-terminated, "NAME=value") that no
 * variable has, with the nearest name: a misspelt variable would otherwise be silently without
 * effect. Returns how many there were.
 */
int ha_config_warn_unknown(char *const *environ_list);

/* One INFO line for each variable that the environment set; WARN where that has no effect yet. */
void ha_config_log(const struct ha_config *config);

/* ---- the table, for tools and tests -------------------------------------------------------- */

enum ha_config_type {
	HA_TYPE_BOOL,	/* 0 or 1; field: bool */
	HA_TYPE_INT,	/* decimal, 0x hex or 0 octal; field: int */
	HA_TYPE_CHOICE, /* one of a list of names, case ignored; field: int or an enum */
	HA_TYPE_STRING, /* field: char[HA_CONFIG_STRING_MAX] */
	HA_TYPE_CIDR,	/* ADDRESS/BITS; field: struct ha_cidr */
};

struct ha_config_choice {
	const char *name;
	int value;
};

/* Heading a variable stands under in the documentation. */
enum ha_config_group {
	HA_GROUP_SWITCH,
	HA_GROUP_SECURITY,
	HA_GROUP_RECOVERY,
	HA_GROUP_PROGRESS,
	HA_GROUP_QP,
	HA_GROUP_RAILS,
	HA_GROUP_INC,
	HA_GROUP_BUDGET,
	HA_GROUP_DIAGNOSTICS,
	HA_GROUP_NCCL,
	HA_GROUP_COUNT,
};

struct ha_config_var {
	const char *name;
	const char *help;	  /* one line */
	const char *default_text; /* how the documentation words a default that is not a value */
	const struct ha_config_choice *choices; /* HA_TYPE_CHOICE, ends with a NULL name */
	size_t offset;				/* of the field in struct ha_config */
	int default_value, min, max;		/* BOOL, INT, CHOICE */
	enum ha_config_type type;
	enum ha_config_group group;
	const char *alias;  /* the variable that it is another name of, and that wins; or NULL */
	bool no_effect_yet; /* read and checked, but nothing acts on it in this version */
};

extern const struct ha_config_var ha_config_vars[];
extern const size_t ha_config_nvars;

/* NULL when there is no such variable. */
const struct ha_config_var *ha_config_find(const char *name);
enum ha_config_origin ha_config_origin(const struct ha_config *config, const char *name);

/* The value as text, the way the variable would be set. Returns buf. */
const char *ha_config_value_text(const struct ha_config *config, const struct ha_config_var *var,
				 char *buf, size_t size);

/* "32 to 4096", "rc, e2e", …: what a value may be. Returns buf. */
const char *ha_config_expectation(const struct ha_config_var *var, char *buf, size_t size);
/* The default, in words where it is no value. Returns buf or a text of its own. */
const char *ha_config_default_text(const struct ha_config_var *var, char *buf, size_t size);

#endif
