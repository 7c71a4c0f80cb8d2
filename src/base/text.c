/* SPDX-License-Identifier: Apache-2.0 */
/* Copying text, and making it printable. */
#include "base/text.h"

#include <string.h>

const char *ha_printable(const char *text, size_t length, char *buf, size_t size)
{
	static const char cut[] = "...";
	size_t n = strnlen(text, length < size ? length : size);
	size_t kept = n < size ? n : size - sizeof cut;

	memcpy(buf, text, kept);
	for (size_t i = 0; i < kept; i++)
		if ((unsigned char)buf[i] < 0x20 || buf[i] == 0x7f)
			buf[i] = '?';
	if (kept == n)
		buf[kept] = '\0';
	else
		memcpy(buf + kept, cut, sizeof cut);
	return buf;
}

void ha_copy_text(char *out, size_t size, const char *text)
{
	size_t len = strnlen(text, size - 1);

	memcpy(out, text, len);
	out[len] = '\0';
}
