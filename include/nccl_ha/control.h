/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * Asking a process that uses the plugin for something: what goes over the Unix socket next to its
 * statistics file (nccl_ha/stats.h), whose name has NCCL_HA_CONTROL_SUFFIX appended. The socket is
 * there unless HA_NCCL_CONTROL=0 or HA_NCCL_STATS=0. It belongs to the job's user, mode 0600, and
 * takes requests from that user and root only, and from processes of its own PID namespace only,
 * whoever else may get at it: containers that share /dev/shm have a root each.
 *
 * Text, a request and its answer per connection of the socket; the process then closes it. Nothing
 * takes time: the process says what becomes of each connection, and whoever wants to know when it
 * is done asks again with `status`.
 *
 *	request    = "nccl-ha " version " " verb " " target [ " force" ] LF
 *	verb       = "failover" | "failback" | "status"
 *	target     = "port " device ":" number | "connection " id | "all"
 *	answer     = "nccl-ha " version " ok" LF *connection "end " count LF
 *	           | "nccl-ha " version " error " text LF
 *	connection = "connection " id " " end " " fate " " path " " port " " epoch " " place [ " " text ] LF
 *	end        = "send" | "recv"
 *	fate       = as NCCL_HA_FATES says
 *	path       = index "." generation of the active path
 *	port       = device ":" number of that path at this host, or "-"
 *	place      = "home" | "elsewhere": whether that path connects the ports that NCCL asked for
 *
 * An id has up to 16 hexadecimal digits; up to eight are the ones that log lines begin with. Words
 * are separated by one space. A request has at most NCCL_HA_CONTROL_REQUEST_MAX bytes with its line
 * feed and must be complete within two seconds, as the answer must be read within five.
 *
 * failover port  drains the port: connections leave it, and it is not chosen again while anything
 *                else is left, until failback. One without a healthy path in reserve stays where it
 *                is until it has one, unless forced.
 * failover connection  moves one, both its ends, each time that one of them is asked: so ask one.
 * failback       brings connections back to their preferred path; of a port, ends its drain; of
 *                all, ends every drain.
 * status         where connections are. Of a port: those that use it; the others are "away".
 */
/* clang-format on */
#ifndef NCCL_HA_CONTROL_H
#define NCCL_HA_CONTROL_H

#define NCCL_HA_CONTROL_SUFFIX	    ".control"
#define NCCL_HA_CONTROL_VERSION	    1
#define NCCL_HA_CONTROL_REQUEST_MAX 192

/* X(NAME, "word"): what becomes of a connection, or of `status` where it is. */
#define NCCL_HA_FATES(X)                                                                           \
	X(ACTIVE, "active")   /* status: its traffic flows */                                      \
	X(MOVING, "moving")   /* on its way to another path */                                     \
	X(AWAY, "away")	      /* not on that port */                                               \
	X(HOME, "home")	      /* on its preferred path: nothing to go back to */                   \
	X(REFUSED, "refused") /* stays where it is; the text says why */                           \
	X(FAILED, "failed")   /* has an error, or is closing */

#endif
