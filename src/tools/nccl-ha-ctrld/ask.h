/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha-ctrld status: what a controller says of itself. */
#ifndef NC_ASK_H
#define NC_ASK_H

/* Prints what the controller at ADDRESS:PORT has, as JSON. Returns an exit status, having said on
 * stderr what is wrong. */
int nc_ask_status(const char *address, const char *key_file);

#endif
