/* SPDX-License-Identifier: Apache-2.0 */
/* Where somebody listens, as text. */
#ifndef HA_INC_NET_RESOLVE_H
#define HA_INC_NET_RESOLVE_H

#include "base/net.h"

#include <stdbool.h>
#include <stddef.h>

/* HOST:PORT, the host a name or an address, an IPv6 one in brackets: the first address that there
 * is. Asks the system, which may wait for a name server. False: `why` says why not. */
bool ha_resolve(const char *text, union ha_sockaddr *out, char *why, size_t size) HA_MUST_CHECK;

#endif
