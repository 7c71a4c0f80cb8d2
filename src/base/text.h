/* SPDX-License-Identifier: Apache-2.0 */
/* Text: copied, and made fit for a log line. */
#ifndef HA_BASE_TEXT_H
#define HA_BASE_TEXT_H

#include <stddef.h>

/* Makes UTF-8 without control characters of any bytes: question marks are in the place of what is
 * neither, so the text stays as long as it is. */
void ha_make_printable(char *text);

/* At most `length` bytes of text, up to its end, made printable, and cut with "..." to fit into
 * buf. Returns buf. */
const char *ha_printable(const char *text, size_t length, char *buf, size_t size);

/* Copies what fits and terminates. */
void ha_copy_text(char *out, size_t size, const char *text);

#endif
