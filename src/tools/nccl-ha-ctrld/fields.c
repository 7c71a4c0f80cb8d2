/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/fields.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"
#define DIGITS	     "0123456789"
#define MBPS_MOST    10000000u /* 10 Tb/s */

/* What is read now. */
struct place {
	const struct nc_yaml *yaml;
	struct nc_fault *fault;
	const struct nc_field *field;
	uint32_t node;
	char shown[64]; /* of the value */
};

static bool is_name(const char *text, size_t length)
{
	return length > 0 && length < NC_NAME_MAX && strspn(text, NAME_LETTERS) >= length;
}

bool nc_is_name(const char *text)
{
	return is_name(text, strlen(text));
}

static bool read_name(const struct place *p, const char *text, char *out)
{
	if (!nc_is_name(text))
		return nc_yaml_wrong(p->yaml, p->node, p->fault,
				     "%s: '%s' is no name; 1 to %d letters, digits and . _ - : are",
				     p->field->key, p->shown, NC_NAME_MAX - 1);
	ha_copy_text(out, NC_NAME_MAX, text);
	return true;
}

static bool read_end(const struct place *p, const char *text, char *out)
{
	const char *slash = strchr(text, '/');
	size_t length = slash ? (size_t)(slash - text) : strlen(text);

	if (!is_name(text, length) || (slash && !is_name(slash + 1, strlen(slash + 1))))
		return nc_yaml_wrong(
		    p->yaml, p->node, p->fault,
		    "%s: '%s' is no end of a link; write SWITCH, HOST/NIC, or HOST "
		    "where it has one port",
		    p->field->key, p->shown);
	ha_copy_text(out, NC_END_MAX, text);
	return true;
}

static bool read_number(const struct place *p, const char *text, int32_t *out)
{
	size_t length = strlen(text);
	long number = length <= 9 ? strtol(text, NULL, 10) : -1;

	if (length == 0 || strspn(text, DIGITS) != length || number < p->field->least ||
	    number > p->field->most)
		return nc_yaml_wrong(p->yaml, p->node, p->fault,
				     "%s: '%s' is no number from %d to %d; write one",
				     p->field->key, p->shown, p->field->least, p->field->most);
	*out = (int32_t)number;
	return true;
}

/* In thousandths, by digits: the same on every machine. */
static bool read_rate(const struct place *p, const char *text, uint32_t *out)
{
	size_t whole = strspn(text, DIGITS);
	bool point = text[whole] == '.';
	size_t behind = point ? strspn(text + whole + 1, DIGITS) : 0;
	uint64_t mbps = 0;

	if (whole > 0 && whole <= 5 && behind <= 3 && (!point || behind > 0) &&
	    text[whole + point + behind] == '\0') {
		for (size_t i = 0; i < whole; i++)
			mbps = 10 * mbps + (uint64_t)(text[i] - '0');
		for (size_t i = 0; i < 3; i++)
			mbps = 10 * mbps + (i < behind ? (uint64_t)(text[whole + 1 + i] - '0') : 0);
	}
	if (mbps == 0 || mbps > MBPS_MOST)
		return nc_yaml_wrong(
		    p->yaml, p->node, p->fault,
		    "%s: '%s' is no rate; write Gb/s, from 0.001 to %u, as 100 or 0.5",
		    p->field->key, p->shown, MBPS_MOST / 1000);
	*out = (uint32_t)mbps;
	return true;
}

static bool read_bool(const struct place *p, const char *text, bool *out)
{
	*out = !strcmp(text, "true");
	return *out || !strcmp(text, "false") ||
	       nc_yaml_wrong(p->yaml, p->node, p->fault, "%s: '%s' is neither true nor false",
			     p->field->key, p->shown);
}

static bool read_scalar(const struct place *p, const char *text, void *out)
{
	switch (p->field->kind) {
	case NC_NAME:
		return read_name(p, text, out);
	case NC_END:
		return read_end(p, text, out);
	case NC_NUMBER:
		return read_number(p, text, out);
	case NC_RATE:
		return read_rate(p, text, out);
	default:
		return read_bool(p, text, out);
	}
}

static enum nc_yaml_kind shape_of(enum nc_field_kind kind)
{
	return kind == NC_SEQUENCE  ? NC_YAML_SEQUENCE
	       : kind == NC_MAPPING ? NC_YAML_MAPPING
				    : NC_YAML_SCALAR;
}

static bool read_value(struct place *p, void *out)
{
	static const char *const shapes[] = {[NC_YAML_SCALAR] = "one value",
					     [NC_YAML_SEQUENCE] = "a list: [...], or lines with -",
					     [NC_YAML_MAPPING] = "keys and values: {key: value}"};
	const struct nc_yaml_node *node = &p->yaml->nodes[p->node];
	enum nc_yaml_kind shape = shape_of(p->field->kind);

	if (node->kind != shape)
		return nc_yaml_wrong(p->yaml, p->node, p->fault, "%s: here goes %s", p->field->key,
				     shapes[shape]);
	if (shape == NC_YAML_SCALAR) {
		ha_printable(node->text, SIZE_MAX, p->shown, sizeof(p->shown));
		return read_scalar(p, node->text, out);
	}
	*(uint32_t *)out = p->node;
	return true;
}

static bool unknown_key(const struct place *p, const char *what, const struct nc_field *fields,
			unsigned n)
{
	char known[160] = "", shown[64];
	size_t used = 0;

	for (unsigned i = 0; i < n; i++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
					 fields[i].key);
	ha_printable(p->yaml->nodes[p->node].text, SIZE_MAX, shown, sizeof(shown));
	return nc_yaml_wrong(p->yaml, p->node, p->fault, "%s has no key '%s'; its keys are %s",
			     what, shown, known);
}

bool nc_fields_read(const struct nc_yaml *yaml, uint32_t node, const char *what,
		    const struct nc_field *fields, unsigned n, void *out, struct nc_fault *fault)
{
	struct place p = {.yaml = yaml, .fault = fault};
	uint32_t seen = 0;

	if (yaml->nodes[node].kind != NC_YAML_MAPPING)
		return nc_yaml_wrong(yaml, node, fault, "%s is keys and values; write {%s: ...}",
				     what, fields[0].key);
	for (uint32_t key = yaml->nodes[node].first; key; key = yaml->nodes[p.node].next) {
		unsigned i = 0;

		p.node = key;
		while (i < n && strcmp(yaml->nodes[key].text, fields[i].key) != 0)
			i++;
		if (i == n)
			return unknown_key(&p, what, fields, n);
		if (seen & 1u << i)
			return nc_yaml_wrong(yaml, key, fault, "%s has %s twice; take one away",
					     what, fields[i].key);
		seen |= 1u << i;
		p.field = &fields[i];
		p.node = yaml->nodes[key].next;
		if (!read_value(&p, (char *)out + fields[i].offset))
			return false;
	}
	for (unsigned i = 0; i < n; i++)
		if (fields[i].required && !(seen & 1u << i))
			return nc_yaml_wrong(yaml, node, fault, "%s needs %s; add it", what,
					     fields[i].key);
	return true;
}
