/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a switch does for groups: the controller installs its part of each group's plan, children
 * come with the group's key and join the trees in it, and what they send is added.
 *
 * A tree is made when its first child comes, for one epoch, and ends when all children have gone, a
 * child comes for a later epoch, its parent is gone, something is wrong on it, or its group has
 * been over for NS_OVER_NS. Nothing of it is kept. When it ends, its children hear it by the end of
 * their connections.
 *
 * A child may come before the controller's word does: it waits for that, until the server has
 * enough of it.
 *
 * A switch has one of these for each of its threads, each with trees of its own, and no thread
 * touches another one's. The first one hears the controller and who has dialled. It deals the
 * places of each group's plan to all threads, and tells the others all that is said of groups;
 * who wants to join a tree of theirs is handed to them, and comes back when it has left.
 */
#ifndef NS_GROUPS_H
#define NS_GROUPS_H

#include "base/list.h"
#include "base/seats.h"
#include "inc/join.h"
#include "inc/part.h"
#include "inc/switch_counts.h"
#include "inc/verbs/tree.h"
#include "tools/nccl-ha-switchd/inbox.h"
#include "tools/nccl-ha-switchd/line.h"

#define NS_THREADS_MOST 64

#define NS_UP_NS   5000000000ull /* for a parent to answer */
#define NS_OVER_NS 5000000000ull /* for children to go whose group is over */
#define NS_FORGOTTEN_NS                                                                            \
	60000000000ull /* for a group that the controller does not know any more                   \
			*/

struct ns_tree;

/* Who has dialled, from its first byte on. */
struct ns_child {
	struct ns_line line; /* first: lines are children */
	struct ha_list link; /* of the thread that has it */
	struct ha_seat seat; /* until it has joined */
	bool is_seated;
	uint64_t since_ns;
	bool has_asked; /* `join` and `secret` are what it said */
	struct ha_join join;
	uint8_t secret[HA_CTRL_SECRET_BYTES];
	struct ns_tree *tree; /* that it has joined; NULL: none */
	unsigned thread;      /* whose tree it wants to join, or has */
	const char *refusal;  /* why that thread gives it back; NULL: it has left */
	struct ns_letter letter;
};

/* What the first thread's groups tell those of the others. */
struct ns_order {
	enum {
		NS_ORDER_INSTALL, /* `frame` */
		NS_ORDER_EPOCH,	  /* of `group`: all before it are over */
		NS_ORDER_FORGET,  /* `group`, with its trees */
		NS_ORDER_DRAIN,
		NS_ORDER_UNDRAIN,
		NS_ORDER_END,
	} kind;
	uint64_t group;
	uint32_t epoch;
	const struct ha_talk_frame *frame;
};

/* Who else there is. */
struct ns_sharing {
	unsigned threads; /* with this one, 0; 1: nobody */
	/* Tells all others, in the order of calls. The order is the caller's. */
	void (*tell)(void *others, const struct ns_order *order);
	void *others;
	unsigned lanes[NS_THREADS_MOST], spares[NS_THREADS_MOST]; /* places that each has */
	unsigned away;						  /* children at others */
};

struct ns_groups {
	struct ha_list all;
	struct ha_list ended; /* trees whose device has not let go of them yet */
	struct ha_port *port;
	const struct ha_job_key *site;
	int epoll;
	unsigned n_trees;
	bool is_drained;		/* by an operator, who may take it back: nobody joins yet */
	bool is_ending;			/* nobody joins any more */
	struct ha_switch_counts counts; /* of trees that have ended also what they added */
	struct ns_sharing sharing;
};

void ns_groups_begin(struct ns_groups *groups, struct ha_port *port, const struct ha_job_key *site,
		     int epoll);
/* Before anything is installed: these are the first thread's, of so many. */
void ns_groups_share(struct ns_groups *groups, unsigned threads,
		     void (*tell)(void *others, const struct ns_order *order), void *others);
/* False: the device does not let go of something, which is left as it is. */
bool ns_groups_end(struct ns_groups *groups);

/* The controller's word. Of a part that cannot be read nothing is done: false. */
bool ns_groups_install(struct ns_groups *groups, const struct ha_talk_frame *frame) HA_MUST_CHECK;
void ns_groups_remove(struct ns_groups *groups, const struct ha_talk_frame *frame, uint64_t now_ns);
/* The controller is gone, and may not know any of them when it comes back. */
void ns_groups_doubt(struct ns_groups *groups, uint64_t now_ns);

enum ns_admission {
	NS_JOINED,
	NS_WAITS,   /* the group is not known yet */
	NS_REFUSED, /* `why` */
	NS_AWAY,    /* it is to be handed to child->thread, and brought back */
};
/* A child that has asked. */
enum ns_admission ns_groups_admit(struct ns_groups *groups, struct ns_child *child, uint64_t now_ns,
				  const char **why);
/* The connection of a child is gone: it leaves its tree, if it has one. */
void ns_groups_leave(struct ns_groups *groups, struct ns_child *child);

/* A child that was away has come back, without a tree. */
void ns_groups_return(struct ns_groups *groups, const struct ns_child *child);
/* Nobody is in a tree of any thread. */
bool ns_groups_are_left(const struct ns_groups *groups);
/* What the first thread has told. */
void ns_groups_obey(struct ns_groups *groups, const struct ns_order *order);

/* Whoever is in a tree is asked to leave it, and nobody joins; until it is taken back. */
void ns_groups_drain(struct ns_groups *groups);
void ns_groups_undrain(struct ns_groups *groups);
/* The same, since the program is about to end: for good. */
void ns_groups_announce_end(struct ns_groups *groups);

/* What has been counted so far; `refused` is not this one's to know. */
void ns_groups_count(const struct ns_groups *groups, struct ha_switch_counts *counts);

/* Adds. True: something has moved. */
bool ns_groups_progress(struct ns_groups *groups);
/* Looks for what was lost; to be called often. */
void ns_groups_look(struct ns_groups *groups, uint64_t now_ns);
/* What time limits say, and what could not be ended before. */
void ns_groups_tick(struct ns_groups *groups, uint64_t now_ns);

#endif
