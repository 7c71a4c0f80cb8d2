/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tools watch the resident size for leaks. AddressSanitizer keeps freed memory back, 256 MiB of
 * it unless told, which looks the same: so in such a build it keeps little. Its leak checker runs
 * all the same.
 */
#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
	return "quarantine_size_mb=1";
}
#else
typedef int ha_nothing_here;
#endif
