/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes: places that perf, bpftrace, gdb and SystemTap can watch in a running job, named
 * nccl_ha:NAME. Where the compiler found <sys/sdt.h> a probe is one no-op instruction and a note
 * beside the code; elsewhere it is nothing. Only changes of state have one, nothing a message
 * passes.
 *
 * The table in docs/operations.md has them all with their arguments; the test usdt_notes compares.
 * Arguments are integers, not narrower than int (gdb does not know the names of all registers of a
 * byte), and pointers to text. What they take to work out is paid for whether somebody watches or
 * not, so they are what is at hand.
 */
#ifndef HA_BASE_USDT_H
#define HA_BASE_USDT_H

#ifdef HA_HAVE_SDT
#include <sys/sdt.h>
#define HA_USDT2(name, a, b)		 DTRACE_PROBE2(nccl_ha, name, a, b)
#define HA_USDT3(name, a, b, c)		 DTRACE_PROBE3(nccl_ha, name, a, b, c)
#define HA_USDT4(name, a, b, c, d)	 DTRACE_PROBE4(nccl_ha, name, a, b, c, d)
#define HA_USDT5(name, a, b, c, d, e)	 DTRACE_PROBE5(nccl_ha, name, a, b, c, d, e)
#define HA_USDT6(name, a, b, c, d, e, f) DTRACE_PROBE6(nccl_ha, name, a, b, c, d, e, f)
#else
#define HA_USDT2(name, a, b)		 ((void)(a), (void)(b))
#define HA_USDT3(name, a, b, c)		 (HA_USDT2(name, a, b), (void)(c))
#define HA_USDT4(name, a, b, c, d)	 (HA_USDT3(name, a, b, c), (void)(d))
#define HA_USDT5(name, a, b, c, d, e)	 (HA_USDT4(name, a, b, c, d), (void)(e))
#define HA_USDT6(name, a, b, c, d, e, f) (HA_USDT5(name, a, b, c, d, e), (void)(f))
#endif

#endif
