/* SPDX-License-Identifier: Apache-2.0 */
#include "base/invariant.h"

#include <stdio.h>
#include <stdlib.h>

void ha_invariant_broken(const char *what, const char *file, int line, const char *function)
{
	fprintf(stderr, "nccl-ha: %s:%d: %s: this must be, and is not: %s\n", file, line, function,
		what);
	abort();
}
