/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/yaml_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* A sequence or mapping that has begun. */
struct level {
	uint32_t node, last; /* child */
	bool value_next;     /* of a mapping */
};

struct reader {
	struct nc_yaml *yaml;
	struct nc_fault *fault;
	struct level levels[NC_YAML_DEPTH];
	unsigned depth;
	unsigned documents;
};

__attribute__((format(printf, 4, 5))) static bool wrong_at(struct nc_fault *fault, unsigned line,
							   unsigned column, const char *format, ...)
{
	va_list args;

	fault->line = line;
	fault->column = column;
	va_start(args, format);
	vsnprintf(fault->text, sizeof(fault->text), format, args);
	va_end(args);
	return false;
}

bool nc_yaml_wrong(const struct nc_yaml *yaml, uint32_t node, struct nc_fault *fault,
		   const char *format, ...)
{
	va_list args;

	fault->line = yaml->nodes[node].line;
	fault->column = yaml->nodes[node].column;
	va_start(args, format);
	vsnprintf(fault->text, sizeof(fault->text), format, args);
	va_end(args);
	return false;
}

static unsigned line_of(const yaml_mark_t *mark)
{
	return (unsigned)mark->line + 1;
}

static unsigned column_of(const yaml_mark_t *mark)
{
	return (unsigned)mark->column + 1;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool room_for_one(struct nc_yaml *yaml)
{
	uint32_t room = yaml->room ? 2 * yaml->room : 256;
	struct nc_yaml_node *nodes;

	if (yaml->n < yaml->room)
		return true;
	nodes = realloc(yaml->nodes, room * sizeof(*nodes));
	if (!nodes)
		return false;
	yaml->nodes = nodes;
	yaml->room = room;
	return true;
}

static void append(struct reader *r, uint32_t node)
{
	struct level *level = &r->levels[r->depth - 1];

	if (level->last)
		r->yaml->nodes[level->last].next = node;
	else
		r->yaml->nodes[level->node].first = node;
	level->last = node;
}

/* One more, of the innermost that has begun. */
static bool add(struct reader *r, const yaml_event_t *event, enum nc_yaml_kind kind, char *text)
{
	const yaml_mark_t *at = &event->start_mark;
	struct level *level = r->depth ? &r->levels[r->depth - 1] : NULL;
	uint32_t number = r->yaml->n;

	if (number == NC_YAML_NODES)
		return wrong_at(r->fault, line_of(at), column_of(at),
				"the file has more than %d values; divide the fabric",
				NC_YAML_NODES);
	if (level && r->yaml->nodes[level->node].kind == NC_YAML_MAPPING) {
		if (!level->value_next && kind != NC_YAML_SCALAR)
			return wrong_at(
			    r->fault, line_of(at), column_of(at),
			    "a key is a list or a mapping; write a word before the colon");
		level->value_next = !level->value_next;
	}
	if (!room_for_one(r->yaml))
		return wrong_at(r->fault, 0, 0, "out of memory");
	r->yaml->nodes[number] = (struct nc_yaml_node){
	    .kind = kind, .line = line_of(at), .column = column_of(at), .text = text};
	r->yaml->n++;
	if (level)
		append(r, number);
	return true;
}

static bool begin(struct reader *r, const yaml_event_t *event, enum nc_yaml_kind kind)
{
	const yaml_mark_t *at = &event->start_mark;

	if (r->depth == NC_YAML_DEPTH)
		return wrong_at(
		    r->fault, line_of(at), column_of(at),
		    "more than %d lists and mappings in one another; a topology needs 5",
		    NC_YAML_DEPTH);
	if (!add(r, event, kind, NULL))
		return false;
	r->levels[r->depth++] = (struct level){.node = r->yaml->n - 1};
	return true;
}

static bool is_text(const unsigned char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] < ' ' || bytes[i] == 0x7f)
			return false;
	return true;
}

static bool scalar(struct reader *r, const yaml_event_t *event)
{
	const yaml_mark_t *at = &event->start_mark;
	char *text;

	if (!is_text(event->data.scalar.value, event->data.scalar.length))
		return wrong_at(
		    r->fault, line_of(at), column_of(at),
		    "a value has control characters or several lines; write it in one line");
	text = strndup((const char *)event->data.scalar.value, event->data.scalar.length);
	if (!text)
		return wrong_at(r->fault, 0, 0, "out of memory");
	if (add(r, event, NC_YAML_SCALAR, text))
		return true;
	free(text);
	return false;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* What stands before a value: an anchor could only be for an alias, and a tag says what it is. */
static bool is_decorated(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return event->data.scalar.anchor || event->data.scalar.tag;
	case YAML_SEQUENCE_START_EVENT:
		return event->data.sequence_start.anchor || event->data.sequence_start.tag;
	case YAML_MAPPING_START_EVENT:
		return event->data.mapping_start.anchor || event->data.mapping_start.tag;
	default:
		return event->type == YAML_ALIAS_EVENT;
	}
}

static bool take(struct reader *r, const yaml_event_t *event)
{
	const yaml_mark_t *at = &event->start_mark;

	if (is_decorated(event))
		return wrong_at(
		    r->fault, line_of(at), column_of(at),
		    "anchors (&), aliases (*) and tags (!) are not read; write the value itself");
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		return ++r->documents == 1 ||
		       wrong_at(r->fault, line_of(at), column_of(at),
				"a second document begins; a topology is one");
	case YAML_SCALAR_EVENT:
		return scalar(r, event);
	case YAML_SEQUENCE_START_EVENT:
		return begin(r, event, NC_YAML_SEQUENCE);
	case YAML_MAPPING_START_EVENT:
		return begin(r, event, NC_YAML_MAPPING);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		r->depth--;
		return true;
	default:
		return true;
	}
}

/* The reader of bytes says how far it came, everything after it says line and column. */
static bool not_yaml(const yaml_parser_t *parser, const unsigned char *bytes,
		     struct nc_fault *fault)
{
	yaml_mark_t at = parser->problem_mark;

	if (parser->error == YAML_MEMORY_ERROR)
		return wrong_at(fault, 0, 0, "out of memory");
	if (parser->error == YAML_READER_ERROR) {
		at = (yaml_mark_t){0};
		for (size_t i = 0; i < parser->problem_offset; i++) {
			at.column = bytes[i] == '\n' ? 0 : at.column + 1;
			at.line += bytes[i] == '\n';
		}
	}
	return wrong_at(
	    fault, line_of(&at), column_of(&at),
	    "this is no YAML: %s%s%s; look at indentation, brackets and quotes before it",
	    parser->context ? parser->context : "", parser->context ? ", " : "",
	    parser->problem ? parser->problem : "it cannot be read");
}

static bool read_events(yaml_parser_t *parser, struct reader *r, const unsigned char *bytes)
{
	bool good = true, ended = false;

	while (good && !ended) {
		yaml_event_t event;

		if (!yaml_parser_parse(parser, &event))
			return not_yaml(parser, bytes, r->fault);
		ended = event.type == YAML_STREAM_END_EVENT;
		good = take(r, &event);
		yaml_event_delete(&event);
	}
	return good;
}

bool nc_yaml_read(struct nc_yaml *yaml, const void *bytes, size_t length, struct nc_fault *fault)
{
	struct reader r = {.yaml = yaml, .fault = fault};
	yaml_parser_t parser;
	bool good;

	*yaml = (struct nc_yaml){0};
	*fault = (struct nc_fault){0};
	if (length > NC_YAML_BYTES)
		return wrong_at(fault, 0, 0, "it has more than %u bytes; divide the fabric",
				NC_YAML_BYTES);
	if (!yaml_parser_initialize(&parser))
		return wrong_at(fault, 0, 0, "out of memory");
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, bytes, length);
	good = read_events(&parser, &r, bytes);
	yaml_parser_delete(&parser);
	if (good && yaml->n == 0)
		return wrong_at(fault, 0, 0, "it is empty; a topology begins with version: 1");
	return good;
}

void nc_yaml_free(struct nc_yaml *yaml)
{
	for (uint32_t i = 0; i < yaml->n; i++)
		free(yaml->nodes[i].text);
	free(yaml->nodes);
	*yaml = (struct nc_yaml){0};
}
