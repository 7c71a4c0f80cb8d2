/* SPDX-License-Identifier: Apache-2.0 */
/* What the plugin sees of NCCL's library: a logger, and its version. */
#include "some_nccl.h"

#include <stdarg.h>
#include <stdio.h>

static int version, level_said;
static unsigned long flags_said;
static char said[1024];

ncclResult_t ncclGetVersion(int *out)
{
	*out = version;
	return version ? ncclSuccess : ncclInternalError;
}

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
		   const char *fmt, ...)
{
	va_list args;

	(void)file, (void)line;
	va_start(args, fmt);
	vsnprintf(said, sizeof(said), fmt, args);
	va_end(args);
	level_said = (int)level;
	flags_said = flags;
}

ncclDebugLogger_t some_nccl(int its_version)
{
	version = its_version;
	said[0] = '\0';
	return logger;
}

const char *some_nccl_said(int *level, unsigned long *flags)
{
	*level = level_said;
	*flags = flags_said;
	return said;
}
