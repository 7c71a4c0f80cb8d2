/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities and foreign text as people read them. Each returns buf. */
#ifndef NH_TEXT_H
#define NH_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define NH_TEXT_MAX 32

/* "-", "12 ns", "3.4 µs", "1.25 ms", "12 s"; 0 is "-". */
const char *nh_time_text(uint64_t ns, char buf[NH_TEXT_MAX]);
/* A long time, to the second: "42 s", "3 min 2 s", "5 h 12 min", "3 d 4 h". */
const char *nh_duration_text(uint64_t ns, char buf[NH_TEXT_MAX]);
/* "400 Gb/s". */
const char *nh_speed_text(uint64_t mbps, char buf[NH_TEXT_MAX]);
/* With a decimal prefix: "12.3 M" and the like; `unit` follows. */
const char *nh_amount_text(double amount, const char *unit, char buf[NH_TEXT_MAX]);
/* "2026-11-22T06:37:22.123Z". */
const char *nh_date_text(uint64_t realtime_ns, char buf[NH_TEXT_MAX]);

/* How documents are written: beyond ASCII by number, since what reads them may be a terminal. */
#define NH_JSON_FORM JSON_ENSURE_ASCII

/* Foreign text as a JSON string: bytes that are no UTF-8 become question marks. */
json_t *nh_json_text(const char *text);

/* Members of an object. It takes over `value`; no text, and the date 0, are null. */
void nh_json_set(json_t *object, const char *name, json_t *value);
void nh_json_set_number(json_t *object, const char *name, uint64_t value);
void nh_json_set_text(json_t *object, const char *name, const char *text);
void nh_json_set_date(json_t *object, const char *name, uint64_t realtime_ns);

#endif
