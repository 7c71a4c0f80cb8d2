/* SPDX-License-Identifier: Apache-2.0 */
/* A mapping of a YAML file into a struct, by a table of its keys. */
#ifndef NC_FIELDS_H
#define NC_FIELDS_H

#include "tools/nccl-ha-ctrld/yaml_tree.h"

#define NC_NAME_MAX 64		      /* with its end */
#define NC_END_MAX  (2 * NC_NAME_MAX) /* HOST/NIC, with its end */

enum nc_field_kind {
	NC_NAME,   /* char[NC_NAME_MAX]: letters, digits, and . _ - : */
	NC_END,	   /* char[NC_END_MAX]: a name, or two with a slash between them */
	NC_NUMBER, /* int32_t, least to most */
	NC_RATE,   /* uint32_t, Mb/s, of a number of Gb/s with at most 3 digits behind the point */
	NC_BOOL,   /* bool */
	NC_SEQUENCE, /* uint32_t: the node */
	NC_MAPPING,  /* uint32_t: the node */
};

struct nc_field {
	const char *key;
	enum nc_field_kind kind;
	size_t offset;
	bool required;
	int32_t least, most;
};

/* Whether a text is one, as of NC_NAME. */
bool nc_is_name(const char *text);

/*
 * What is not there stays as it is in `out`. what: of what this is the mapping, for *fault: "a
 * switch". A key that is not in the table or is there twice, and a value that is not of its kind,
 * is a fault.
 */
bool nc_fields_read(const struct nc_yaml *yaml, uint32_t node, const char *what,
		    const struct nc_field *fields, unsigned n, void *out,
		    struct nc_fault *fault) HA_MUST_CHECK;

#endif
