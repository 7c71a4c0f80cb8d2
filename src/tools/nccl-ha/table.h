/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text whose columns are as wide as what is in them. */
#ifndef NH_TABLE_H
#define NH_TABLE_H

#include <stdio.h>

struct nh_table;

/* `heads` ends with NULL; one that begins with '>' is of a column of numbers. NULL: no memory. */
struct nh_table *nh_table_new(const char *const *heads);
void nh_table_free(struct nh_table *table);

/* The next cell, row by row. Control characters become question marks. */
void nh_table_add(struct nh_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* With `indent` spaces in front of each line; nothing when there are no rows. */
void nh_table_print(const struct nh_table *table, int indent, FILE *to);

#endif
