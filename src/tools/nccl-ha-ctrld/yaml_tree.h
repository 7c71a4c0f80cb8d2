/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML file as a tree, whatever is in the file: it is limited in size, depth and nodes, has one
 * document, and no node stands for another one (aliases), so that reading it takes as long as it
 * is big.
 */
#ifndef NC_YAML_TREE_H
#define NC_YAML_TREE_H

#include "base/result.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NC_YAML_BYTES (1u << 20)
#define NC_YAML_DEPTH 16
#define NC_YAML_NODES 100000

/* What is wrong and what to do, and where: from 1; 0: with the whole file. */
struct nc_fault {
	unsigned line, column;
	char text[320];
};

enum nc_yaml_kind { NC_YAML_SCALAR, NC_YAML_SEQUENCE, NC_YAML_MAPPING };

/* Nodes are numbered from 0, the root: so 0 is nobody's child and nobody's neighbour. */
struct nc_yaml_node {
	enum nc_yaml_kind kind;
	unsigned line, column;
	char *text;	/* of a scalar, without control characters */
	uint32_t first; /* child; in a mapping keys, which are scalars, and values take turns */
	uint32_t next;	/* of the same parent */
};

struct nc_yaml {
	struct nc_yaml_node *nodes;
	uint32_t n, room;
};

/* False: *fault says why. Either way nc_yaml_free is to be called. */
bool nc_yaml_read(struct nc_yaml *yaml, const void *bytes, size_t length,
		  struct nc_fault *fault) HA_MUST_CHECK;
void nc_yaml_free(struct nc_yaml *yaml);

/* Fills in *fault, about a node. Returns false. */
bool nc_yaml_wrong(const struct nc_yaml *yaml, uint32_t node, struct nc_fault *fault,
		   const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
