/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP server for one page, by libmicrohttpd: several scrapes at a time, each within a few
 * seconds. It answers GET and HEAD and nothing else. Clients may be anybody: who does not ask at
 * once makes way for others, and the page is made once a second.
 */
#ifndef NH_HTTP_H
#define NH_HTTP_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Opens "[ADDRESS:]PORT", without an address on the loopback interface; port 0: any. Returns the
 * socket and its address as a URL, or -1 with a reason in `why`. */
int nh_http_listen(const char *where, char *url, size_t url_size, char *why, size_t why_size);

/* The page, which is freed when it is sent; NULL: an error of ours. */
typedef char *(*nh_page_fn)(void *arg, size_t *length);

/*
 * Serves /metrics until *stop, and closes the listener. Whoever names a host must do so by a
 * number, as localhost, by this host's name or by one of `hosts`, which NULL ends; "*" is any.
 * False: it cannot begin.
 */
bool nh_http_serve(int listener, nh_page_fn page, void *arg, const char *const *hosts,
		   const volatile sig_atomic_t *stop);

#endif
