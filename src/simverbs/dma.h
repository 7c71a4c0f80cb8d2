/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies into and out of application memory, as a NIC's DMA does them.
 *
 * An application may look at a buffer while a NIC writes it: protocols that poll on memory do, and
 * no lock orders the two. So these copies are not the C library's: on x86 the bytes land in
 * ascending order as seen from other processors, the last 64 after all the rest, and
 * ThreadSanitizer does not take them for a data race (as it does not see a real NIC either).
 * AddressSanitizer does look: writing to freed memory is a bug that a NIC would not report.
 */
#ifndef SV_DMA_H
#define SV_DMA_H

#include <stddef.h>

void sv_dma_copy(void *dst, const void *src, size_t length);

#endif
