/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/label.h"

#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define VALUE_MAX 256

/* Quotes and backslashes would end the value, or change it. It has no line ends. */
static void escape(const char *value, char escaped[2 * VALUE_MAX])
{
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			*escaped++ = '\\';
		*escaped++ = *value;
	}
	*escaped = '\0';
}

void nh_label_append(char *labels, size_t size, const char *name, const char *value)
{
	char safe[VALUE_MAX], escaped[2 * VALUE_MAX];
	size_t used = strlen(labels);
	int n;

	escape(ha_printable(value, SIZE_MAX, safe, sizeof(safe)), escaped);
	n = snprintf(labels + used, size - used, "%s%s=\"%s\"", used ? "," : "", name, escaped);
	if (n < 0 || (size_t)n >= size - used)
		labels[used] = '\0';
}
