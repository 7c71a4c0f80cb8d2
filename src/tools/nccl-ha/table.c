/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/table.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 16
#define GAP	    2

struct nh_table {
	const char *heads[MAX_COLUMNS];
	bool number[MAX_COLUMNS];
	int width[MAX_COLUMNS];
	size_t columns;
	char **cells;
	size_t ncells, room;
};

/* Characters, not bytes: of UTF-8 all but the bytes that continue one. */
static int width_of(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

struct nh_table *nh_table_new(const char *const *heads)
{
	struct nh_table *table = calloc(1, sizeof(*table));

	for (; table && heads[table->columns] && table->columns < MAX_COLUMNS; table->columns++) {
		size_t i = table->columns;

		table->number[i] = heads[i][0] == '>';
		table->heads[i] = heads[i] + table->number[i];
		table->width[i] = width_of(table->heads[i]);
	}
	return table;
}

void nh_table_free(struct nh_table *table)
{
	for (size_t i = 0; table && i < table->ncells; i++)
		free(table->cells[i]);
	free(table ? table->cells : NULL);
	free(table);
}

void nh_table_add(struct nh_table *table, const char *fmt, ...)
{
	char *cell = NULL;
	va_list args;
	int n;

	if (!table)
		return;
	if (table->ncells == table->room) {
		size_t room = table->room ? 2 * table->room : 64;
		char **grown = realloc(table->cells, room * sizeof(*grown));

		if (!grown)
			return;
		table->cells = grown;
		table->room = room;
	}
	va_start(args, fmt);
	n = vasprintf(&cell, fmt, args);
	va_end(args);
	if (n < 0)
		return;
	ha_make_printable(cell);
	n = width_of(cell);
	if (n > table->width[table->ncells % table->columns])
		table->width[table->ncells % table->columns] = n;
	table->cells[table->ncells++] = cell;
}

static void print_cell(const struct nh_table *table, size_t column, const char *text, FILE *to)
{
	int pad = table->width[column] - width_of(text);
	bool last = column + 1 == table->columns;

	if (table->number[column])
		fprintf(to, "%*s%s%*s", pad, "", text, last ? 0 : GAP, "");
	else
		fprintf(to, "%s%*s", text, last ? 0 : pad + GAP, "");
	if (last)
		putc('\n', to);
}

void nh_table_print(const struct nh_table *table, int indent, FILE *to)
{
	if (!table || table->ncells < table->columns)
		return;
	fprintf(to, "%*s", indent, "");
	for (size_t i = 0; i < table->columns; i++)
		print_cell(table, i, table->heads[i], to);
	for (size_t i = 0; i < table->ncells - table->ncells % table->columns; i++) {
		if (i % table->columns == 0)
			fprintf(to, "%*s", indent, "");
		print_cell(table, i % table->columns, table->cells[i], to);
	}
}
