/* SPDX-License-Identifier: Apache-2.0 */
/* Text: copied, and made fit for a log line. */
#ifndef HA_BASE_TEXT_H
#define HA_BASE_TEXT_H

#include <stddef.h>

/*
 * At most `length` characters of text, up to its end: control characters replaced by question
 * marks, and cut with "..." to fit into buf. Returns buf.
 */
const char *ha_printable(const char *text, size_t length, char *buf, size_t size);

/* Copies what fits and terminates. */
void ha_copy_text(char *out, size_t size, const char *text);

#endif
