/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each message passes does without two of the flags that everything is compiled with
 * (scripts/packaging/hardening.cmake): they would be one instruction in twenty of it.
 */
#ifndef HA_BASE_HOT_H
#define HA_BASE_HOT_H

/* No canary on the stack: what the function has there is a pointer, a work request whose fields it
 * fills in, or completions that libibverbs fills in up to the number it is told. */
#if __has_attribute(no_stack_protector)
#define HA_NO_CANARY __attribute__((no_stack_protector))
#else
#define HA_NO_CANARY
#endif

/* A pointer that stays in a register: the compiler would rather compute it again at each use, which
 * of an element of an array takes it a multiplication. */
#define HA_KEEP(pointer) __asm__("" : "+r"(pointer))

/* A function whose address nobody takes needs no landing place for indirect calls. */
#ifdef __CET__
#define HA_CALLED_DIRECTLY __attribute__((nocf_check))
#else
#define HA_CALLED_DIRECTLY
#endif

#endif
