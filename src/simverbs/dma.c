/* SPDX-License-Identifier: Apache-2.0 */
/* Copies as a NIC's DMA does them; see dma.h. */
#include "simverbs/dma.h"

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif

/* What is copied by words in the end. */
#define TAIL ((size_t)64)

typedef uint64_t unaligned_u64 __attribute__((aligned(1), may_alias));

__attribute__((no_sanitize("thread"))) static void copy_words(uint8_t *dst, const uint8_t *src,
							      size_t length)
{
	for (; length >= 8; length -= 8, dst += 8, src += 8)
		*(volatile unaligned_u64 *)dst = *(const volatile unaligned_u64 *)src;
	for (; length; length--)
		*(volatile uint8_t *)dst++ = *(const volatile uint8_t *)src++;
}

__attribute__((no_sanitize("thread"))) void sv_dma_copy(void *dst, const void *src, size_t length)
{
	uint8_t *to = dst;
	const uint8_t *from = src;

#if defined(HAVE_ASAN)
	if (length) {
		memmove(to, from, length);
		return;
	}
#endif
#if defined(__x86_64__)
	if (length > 4 * TAIL) {
		size_t bulk = length - TAIL;

		/* Its stores may pass each other, but none that comes after it. */
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bulk) : : "memory");
		length = TAIL;
	}
#endif
	copy_words(to, from, length);
}
