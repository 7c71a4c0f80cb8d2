/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the plugin's own that is registered: on pages that nothing else is on. A key is good
 * for whole pages (mr.h), so a peer that has one could write to what lies beside; and registered
 * pages are not copied into children of fork.
 */
#ifndef HA_MEMORY_PAGES_H
#define HA_MEMORY_PAGES_H

#include <stddef.h>

/* Zeroed; NULL: there is no memory. Any thread. */
void *ha_pages_new(size_t size);
/* The same size. NULL is fine. Not before every registration of it has ended. */
void ha_pages_free(void *pages, size_t size);

#endif
