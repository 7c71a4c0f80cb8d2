/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a switch could serve. */
#ifndef NS_CHECK_H
#define NS_CHECK_H

struct ns_settings;

/* Says whether it could serve: key, device, and a controller that knows the switch. An exit
 * status, having said on stderr what is wrong. */
int ns_check(const struct ns_settings *settings);

#endif
