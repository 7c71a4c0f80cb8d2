/* SPDX-License-Identifier: Apache-2.0 */
/* Memory with canaries around it; and the first error of a rank. */
#ifndef NP_MEMORY_H
#define NP_MEMORY_H

#include "tools/nccl-net-perf/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct np_buffer;
struct np_error;

/* False with errno. A buffer of 0 bytes is fine. */
bool np_buffer_alloc(struct np_buffer *b, size_t len);
void np_buffer_free(struct np_buffer *b);
/* How many canary bytes around the data were overwritten. */
uint64_t np_buffer_overrun(const struct np_buffer *b);

/* Always false, for `return np_error_set(...)`. A later error does not replace an earlier one. */
bool np_error_set(struct np_error *e, enum np_exit status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
