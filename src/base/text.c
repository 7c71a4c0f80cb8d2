/* SPDX-License-Identifier: Apache-2.0 */
/* Copying text, and making it printable. */
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* How many bytes the UTF-8 character at `text` has, and its number in *code; 0: it is none. */
static size_t decode(const unsigned char *text, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* with so many bytes */
	size_t n = text[0] < 0x80	  ? 1
		   : text[0] >> 5 == 0x6  ? 2
		   : text[0] >> 4 == 0xe  ? 3
		   : text[0] >> 3 == 0x1e ? 4
					  : 0;

	*code = n == 1 ? text[0] : text[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if (text[i] >> 6 != 2) /* as the end of the text */
			return 0;
		*code = *code << 6 | (text[i] & 0x3f);
	}
	if (*code < least[n] || *code > 0x10ffff || *code >> 11 == 0xd800 >> 11)
		return 0;
	return n;
}

/* C0, DEL and C1: what a terminal obeys. */
static bool is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

void ha_make_printable(char *text)
{
	for (unsigned char *at = (unsigned char *)text; *at;) {
		uint32_t code;
		size_t n = decode(at, &code), bytes = n ? n : 1;

		if (n == 0 || is_control(code))
			memset(at, '?', bytes);
		at += bytes;
	}
}

const char *ha_printable(const char *text, size_t length, char *buf, size_t size)
{
	static const char cut[] = "...";
	size_t n = strnlen(text, length < size ? length : size);
	size_t kept = n < size ? n : size - sizeof cut;

	memcpy(buf, text, kept);
	buf[kept] = '\0';
	ha_make_printable(buf);
	if (kept < n)
		memcpy(buf + kept, cut, sizeof cut);
	return buf;
}

void ha_copy_text(char *out, size_t size, const char *text)
{
	size_t len = strnlen(text, size - 1);

	memcpy(out, text, len);
	out[len] = '\0';
}
