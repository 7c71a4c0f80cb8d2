/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of http.c where nccl-ha must run without libmicrohttpd, as in the wheel: what hosts have
 * of it differs.
 */
#include "tools/nccl-ha/http.h"

#include <stdio.h>

int nh_http_listen(const char *where, char *url, size_t url_size, char *why, size_t why_size)
{
	(void)where, (void)url, (void)url_size;
	snprintf(why, why_size,
		 "this nccl-ha has no HTTP server (that of the packages has one): "
		 "--textfile writes a file for node_exporter");
	return -1;
}

bool nh_http_serve(int listener, nh_page_fn page, void *arg, const char *const *hosts,
		   const volatile sig_atomic_t *stop)
{
	(void)listener, (void)page, (void)arg, (void)hosts, (void)stop;
	return false;
}
