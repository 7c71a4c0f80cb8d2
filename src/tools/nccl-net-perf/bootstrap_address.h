/* SPDX-License-Identifier: Apache-2.0 */
/* Where the root of the bootstrap star is, as text. */
#ifndef NP_BOOTSTRAP_ADDRESS_H
#define NP_BOOTSTRAP_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>

/* HOST:PORT, the host possibly in brackets. passive: to listen there. The list is the caller's to
 * free. NULL with a reason in err. */
struct addrinfo *np_resolve(const char *address, bool passive, char *err, size_t err_len);

/* Puts a reason into err; returns false. */
bool np_fail(char *err, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
