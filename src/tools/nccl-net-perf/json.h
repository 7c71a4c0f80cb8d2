/* SPDX-License-Identifier: Apache-2.0 */
/* The report as a JSON document. */
#ifndef NP_JSON_H
#define NP_JSON_H

#include <stdbool.h>

struct np_error;
struct np_report;

/* Writes --json; false with the reason in error. */
bool np_report_write_json(const struct np_report *rp, struct np_error *error);

#endif
