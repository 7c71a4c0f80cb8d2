/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of a metric: name="value",name="value". */
#ifndef NH_LABEL_H
#define NH_LABEL_H

#include <stddef.h>

/*
 * Appends one to those in labels, which has `size` bytes. The value is foreign: it is made
 * printable, cut to 255 bytes, and what would end it is escaped. A label that does not fit is left
 * out.
 */
void nh_label_append(char *labels, size_t size, const char *name, const char *value);

#endif
