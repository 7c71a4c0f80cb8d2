/* SPDX-License-Identifier: Apache-2.0 */
/* Where somebody listens, as text. */
#ifndef NP_ADDRESS_H
#define NP_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>

#define NP_ADDRESS_LEN 300 /* of HOST:PORT, with its end */

/* HOST:PORT, the host possibly in brackets. passive: to listen there. The list is the caller's to
 * free. NULL with a reason in err. */
struct addrinfo *np_resolve(const char *address, bool passive, char *err, size_t err_len);

/* Puts a reason into err; returns false. */
bool np_fail(char *err, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
