/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pin_code.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct object {
	uintptr_t start;
	const ElfW(Phdr) * segments;
	unsigned n;
};

static bool covers(const struct object *object, uintptr_t address)
{
	for (unsigned i = 0; i < object->n; i++) {
		const ElfW(Phdr) *s = &object->segments[i];

		if (s->p_type == PT_LOAD && address - (object->start + s->p_vaddr) < s->p_memsz)
			return true;
	}
	return false;
}

/* A byte of each page; the volatile keeps the compiler from leaving it out. */
static void touch(uintptr_t from, uintptr_t to, size_t page)
{
	for (uintptr_t at = from; at < to; at += page)
		(void)*(const volatile char *)at;
}

/* What is never written; what is belongs to the process already. */
static size_t lock(const struct object *object)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t locked = 0;

	for (unsigned i = 0; i < object->n; i++) {
		const ElfW(Phdr) *s = &object->segments[i];
		uintptr_t from = (object->start + s->p_vaddr) & ~(page - 1);
		uintptr_t to = object->start + s->p_vaddr + s->p_memsz;

		if (s->p_type != PT_LOAD || (s->p_flags & (PF_R | PF_W)) != PF_R)
			continue;
		if (mlock((const void *)from, to - from) == 0)
			locked += to - from;
		else
			touch(from, to, page);
	}
	return locked;
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct object object = {
	    .start = info->dlpi_addr, .segments = info->dlpi_phdr, .n = info->dlpi_phnum};
	size_t *locked = arg;

	(void)size;
	/* Providers lie in a folder of that name. */
	if (covers(&object, (uintptr_t)ha_keep_resident) || strstr(info->dlpi_name, "libibverbs"))
		*locked += lock(&object);
	return 0;
}

size_t ha_keep_resident(void)
{
	size_t locked = 0;

	dl_iterate_phdr(visit, &locked);
	return locked;
}
