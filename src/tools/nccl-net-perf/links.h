/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a rank. */
#ifndef NP_LINKS_H
#define NP_LINKS_H

#include <stdbool.h>

struct np_link;
struct np_rank;
struct np_side;

/* The connection in one direction with a peer; NULL when the operations do not need it. */
struct np_link *np_find_link(struct np_side *side, bool send, int peer, int channel);

/* Loads and initialises the plugin and reads its devices. */
bool np_side_open(struct np_rank *rk, struct np_side *side, const char *plugin);
/* Connects to all peers that the operations need and registers the buffers. */
bool np_side_connect(struct np_rank *rk, struct np_side *side);
/* Deregisters and closes every connection; true when no call failed. */
bool np_side_disconnect(struct np_rank *rk, struct np_side *side);
/* Finalizes and unloads. */
bool np_side_close(struct np_rank *rk, struct np_side *side);

#endif
