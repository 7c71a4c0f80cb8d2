/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines, into NCCL's logger when there is one and to stderr until then.
 *
 * WARN is what an operator must see; ATTN is what he would want to see as well and nothing is wrong
 * with; INFO is set-up and state changes; TRACE is gated by HA_NCCL_DEBUG. Nothing is logged per
 * message. Every line starts with "NET/HA : ".
 *
 * What is tried again for as long as an outage lasts, for each of hundreds of connections, is told
 * by HA_INFO_LIMITED. A WARN is never limited, nor what ends a connection or a path that it uses.
 */
#ifndef HA_BASE_LOG_H
#define HA_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ha_log_level { HA_LOG_WARN, HA_LOG_ATTN, HA_LOG_INFO, HA_LOG_TRACE };

/* Subsystem of an INFO line, and of an ATTN line where that is one; plugin/ maps it to NCCL's bits.
 */
enum ha_log_subsys { HA_SUBSYS_INIT = 0x1, HA_SUBSYS_NET = 0x10, HA_SUBSYS_ENV = 0x80 };

/* Receives a complete line without newline. Any thread. */
typedef void (*ha_log_sink_t)(enum ha_log_level level, unsigned long subsys, const char *file,
			      int line, const char *text);

/* NULL restores stderr, which shows warnings alone; a sink filters for itself. Any thread; the last
 * call wins. */
void ha_log_set_sink(ha_log_sink_t sink);

/*
 * Whether lines of this thread are left to the writer (writer.h), so that it never waits for the
 * log; returns what was set before. All others write at once, after what the writer has.
 */
bool ha_log_defer(bool on);

/* 0 … 3, from HA_NCCL_DEBUG: TRACE lines at level 1 and up, more detail above. */
void ha_log_set_debug(int level);
extern atomic_int ha_log_debug_level;

void ha_log_write(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6), cold));

/*
 * Of lines with one cause: HA_LOG_BURST at once, after that one in HA_LOG_REFILL_NS, in which up to
 * HA_LOG_BURST gather again. The next one that is written says how many were left out. Anew with
 * each sink, whose reader has seen none. All zero at first. Of the whole process, any thread.
 */
#define HA_LOG_BURST	 10u
#define HA_LOG_REFILL_NS 10000000000ull

struct ha_log_limit {
	_Atomic uint64_t
	    booked_ns;	      /* until then all lines are taken that come in one REFILL each */
	atomic_uint left_out; /* since the last one that was written */
	atomic_uint sink;     /* the number of the one that has seen those */
};

/* An INFO line, if the limit has one left. */
void ha_log_write_limited(struct ha_log_limit *limit, unsigned long subsys, const char *file,
			  int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6), cold));

#define HA_WARN(...)	     ha_log_write(HA_LOG_WARN, 0, __FILE__, __LINE__, __VA_ARGS__)
#define HA_ATTN(subsys, ...) ha_log_write(HA_LOG_ATTN, (subsys), __FILE__, __LINE__, __VA_ARGS__)
#define HA_INFO(subsys, ...) ha_log_write(HA_LOG_INFO, (subsys), __FILE__, __LINE__, __VA_ARGS__)
#define HA_INFO_LIMITED_BY(limit, subsys, ...)                                                     \
	ha_log_write_limited((limit), (subsys), __FILE__, __LINE__, __VA_ARGS__)
/* With one limit for this place in the source. */
#define HA_INFO_LIMITED(subsys, ...)                                                               \
	do {                                                                                       \
		static struct ha_log_limit limit_of_place;                                         \
		HA_INFO_LIMITED_BY(&limit_of_place, subsys, __VA_ARGS__);                          \
	} while (0)
#define HA_TRACE(min_level, ...)                                                                   \
	do {                                                                                       \
		if (__builtin_expect(atomic_load_explicit(&ha_log_debug_level,                     \
							  memory_order_relaxed) >= (min_level),    \
				     0))                                                           \
			ha_log_write(HA_LOG_TRACE, HA_SUBSYS_NET, __FILE__, __LINE__,              \
				     __VA_ARGS__);                                                 \
	} while (0)

#endif
