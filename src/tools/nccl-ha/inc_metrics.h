/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller of all-reduces in the network has, in Prometheus' text format. */
#ifndef NH_INC_METRICS_H
#define NH_INC_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* said: its report. Every family is there, also where it has no sample. False: it could not be
 * written. */
bool nh_inc_metrics(const json_t *said, FILE *out);

#endif
