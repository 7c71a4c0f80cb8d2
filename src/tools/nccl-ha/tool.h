/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `nccl-ha` tool: its commands and what they share. A command parses its own arguments with
 * argp and is one file. To add one: a function here, a row in main.c.
 *
 * What a command reads belongs to other processes, and to other users when root asks: it may be of
 * another version, damaged, or meant to harm. Text from there is made printable before it is shown.
 */
#ifndef NH_TOOL_H
#define NH_TOOL_H

#include <argp.h>

/* Exit statuses. */
enum nh_exit {
	NH_EXIT_OK = 0,
	NH_EXIT_ATTENTION = 1, /* status: a connection is not protected; others: it did not work */
	NH_EXIT_FAILED = 1,
	NH_EXIT_USAGE = 2,
	NH_EXIT_NO_JOB = 3, /* none is running here, or none of those that were asked for */
	NH_EXIT_GONE = 3,   /* inc: the switch that is waited for, of which nothing is known */
};

/* argv[0] is the command's name, as in "nccl-ha status". */
int nh_cmd_status(int argc, char **argv);
int nh_cmd_health(int argc, char **argv);
int nh_cmd_top(int argc, char **argv);
int nh_cmd_events(int argc, char **argv);
int nh_cmd_config(int argc, char **argv);
int nh_cmd_metrics(int argc, char **argv);
int nh_cmd_failover(int argc, char **argv);
int nh_cmd_failback(int argc, char **argv);
int nh_cmd_inc(int argc, char **argv);

#endif
