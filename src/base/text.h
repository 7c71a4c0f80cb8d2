/* SPDX-License-Identifier: Apache-2.0 */
/* Text from outside, made fit for a log line. */
#ifndef HA_BASE_TEXT_H
#define HA_BASE_TEXT_H

#include <stddef.h>

/*
 * At most `length` characters of text, up to its end: control characters replaced by question
 * marks, and cut with "..." to fit into buf. Returns buf.
 */
const char *ha_printable(const char *text, size_t length, char *buf, size_t size);

#endif
