/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding, loading and unloading a plugin, and naming its parts.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "tools/common/netplugin_impl.h"

/* NCCL tried these too once; named in messages, not driven. */
#define OLDEST_KNOWN_API 5

static void set_error(char *err, size_t len, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void set_error(char *err, size_t len, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (err && len)
		vsnprintf(err, len, fmt, ap);
	va_end(ap);
}

/* ---- finding the file ------------------------------------------------------------------- */

/* Directory of the running program, without '/' at the end. */
static bool program_directory(char *dir, size_t len)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return false;
	exe[n] = '\0';
	return (size_t)snprintf(dir, len, "%s", dirname(exe)) < len;
}

/* The first of the places around the program that holds `file`; false if none does. */
static bool find_near_program(const char *file, char *path, size_t len)
{
	static const char *const places[] = {".", "..", HA_INSTALLED_LIBDIR};
	char dir[PATH_MAX];

	if (!program_directory(dir, sizeof(dir)))
		return false;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if ((size_t)snprintf(path, len, "%s/%s/%s", dir, places[i], file) >= len)
			continue;
		if (access(path, R_OK) == 0)
			return true;
	}
	return false;
}

static void *load(const char *path, char *why, size_t why_len)
{
	/* As NCCL does: everything resolved now, nothing visible to other libraries. */
	void *dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!dl)
		set_error(why, why_len, "%s", dlerror());
	return dl;
}

static void *find_and_load(const char *what, char *err, size_t err_len)
{
	char file[NAME_MAX + 1], path[PATH_MAX], why[768];
	void *dl;

	if (strchr(what, '/')) {
		dl = load(what, why, sizeof(why));
		if (!dl)
			set_error(err, err_len, "cannot load plugin: %s", why);
		return dl;
	}
	if (strstr(what, ".so"))
		snprintf(file, sizeof(file), "%s", what);
	else
		snprintf(file, sizeof(file), "libnccl-net-%s.so", what);
	if (find_near_program(file, path, sizeof(path))) {
		dl = load(path, why, sizeof(why));
		if (!dl)
			set_error(err, err_len, "found plugin '%s' but cannot load it: %s", what,
				  why);
		return dl;
	}
	dl = load(file, why, sizeof(why));
	if (!dl)
		set_error(err, err_len,
			  "no plugin '%s': %s is neither beside this program nor on the "
			  "linker's path (%s); name it by path or set LD_LIBRARY_PATH",
			  what, file, why);
	return dl;
}

/* ---- versions --------------------------------------------------------------------------- */

static const void *find_vtable(void *dl, int api)
{
	char symbol[32];

	snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", api);
	return dlsym(dl, symbol);
}

static unsigned find_versions(void *dl)
{
	unsigned versions = 0;

	for (int api = OLDEST_KNOWN_API; api <= NP_API_NEWEST; api++)
		if (find_vtable(dl, api))
			versions |= 1u << api;
	return versions;
}

const char *np_versions_text(unsigned versions, char *buf, size_t len)
{
	size_t used = 0;

	snprintf(buf, len, "none");
	for (int api = 0; api < 32; api++) {
		if (!(versions & (1u << api)) || used >= len)
			continue;
		used += (size_t)snprintf(buf + used, len - used, "%sv%d", used ? " " : "", api);
	}
	return buf;
}

int np_parse_api(const char *text)
{
	char *end;
	long api;

	if (!strcasecmp(text, "newest"))
		return 0;
	if (*text == 'v' || *text == 'V')
		text++;
	api = strtol(text, &end, 10);
	if (end == text || *end || api < NP_API_OLDEST || api > NP_API_NEWEST)
		return -1;
	return (int)api;
}

/* ---- opening and closing ---------------------------------------------------------------- */

static bool choose_version(struct np_plugin *p, int api, char *err, size_t err_len)
{
	char exported[64];

	np_versions_text(p->versions, exported, sizeof(exported));
	if (api && (api < NP_API_OLDEST || api > NP_API_NEWEST)) {
		set_error(err, err_len, "API version %d is not one of v%d … v%d", api,
			  NP_API_OLDEST, NP_API_NEWEST);
		return false;
	}
	for (int v = NP_API_NEWEST; v >= NP_API_OLDEST; v--) {
		if ((p->versions & (1u << v)) && (!api || api == v)) {
			p->api = v;
			p->table.any = find_vtable(p->dl, v);
			return true;
		}
	}
	if (api)
		set_error(err, err_len,
			  "plugin %s has no ncclNetPlugin_v%d; versions it exports: %s", p->path,
			  api, exported);
	else
		set_error(err, err_len,
			  "plugin %s exports none of ncclNetPlugin_v%d … _v%d; versions it "
			  "exports: %s",
			  p->path, NP_API_OLDEST, NP_API_NEWEST, exported);
	return false;
}

/* Takes over dl, also when it fails. */
static struct np_plugin *wrap(void *dl, const char *what, int api, char *err, size_t err_len)
{
	struct np_plugin *p = calloc(1, sizeof(*p));
	struct link_map *map = NULL;

	if (!p) {
		set_error(err, err_len, "out of memory");
		dlclose(dl);
		return NULL;
	}
	p->dl = dl;
	if (dlinfo(dl, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0])
		what = map->l_name;
	snprintf(p->path, sizeof(p->path), "%s", what);
	p->versions = find_versions(dl);
	if (!choose_version(p, api, err, err_len)) {
		np_close(p);
		return NULL;
	}
	return p;
}

struct np_plugin *np_open(const char *what, int api, char *err, size_t err_len)
{
	void *dl = find_and_load(what, err, err_len);

	return dl ? wrap(dl, what, api, err, err_len) : NULL;
}

/* The file in memory, a file of its own to the linker. Its descriptor, or -1 with errno. */
static int copy_file(const char *path)
{
	int in = open(path, O_RDONLY | O_CLOEXEC), out = memfd_create("plugin", MFD_CLOEXEC);
	ssize_t n = in >= 0 && out >= 0 ? 1 : -1;
	int why;

	while (n > 0)
		n = sendfile(out, in, NULL, 1 << 20);
	why = errno;
	if (in >= 0)
		close(in);
	if (n == 0)
		return out;
	if (out >= 0)
		close(out);
	errno = why;
	return -1;
}

struct np_plugin *np_open_copy(const struct np_plugin *p, char *err, size_t err_len)
{
	struct np_plugin *copy = NULL;
	char path[32], why[768];
	int fd = copy_file(p->path);
	void *dl;

	if (fd < 0) {
		set_error(err, err_len, "cannot copy plugin %s: %s", p->path, strerror(errno));
		return NULL;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	dl = load(path, why, sizeof(why));
	close(fd);
	if (dl)
		copy = wrap(dl, path, p->api, err, err_len);
	else
		set_error(err, err_len, "cannot load a copy of plugin %s: %s", p->path, why);
	if (copy)
		snprintf(copy->path, sizeof(copy->path), "%s", p->path);
	return copy;
}

void np_close(struct np_plugin *p)
{
	if (!p)
		return;
	dlclose(p->dl);
	free(p);
}

/* ---- what it is ------------------------------------------------------------------------- */

int np_api(const struct np_plugin *p)
{
	return p->api;
}

const char *np_name(const struct np_plugin *p)
{
	const char *name = p->table.v8->name; /* the first member in every version */

	return name ? name : "(null)";
}

const char *np_path(const struct np_plugin *p)
{
	return p->path;
}

unsigned np_versions(const struct np_plugin *p)
{
	return p->versions;
}

void *np_dlhandle(const struct np_plugin *p)
{
	return p->dl;
}

const char *np_result_name(ncclResult_t result)
{
	static const char *const names[] = {
	    [ncclSuccess] = "ncclSuccess",
	    [ncclUnhandledCudaError] = "ncclUnhandledCudaError",
	    [ncclSystemError] = "ncclSystemError",
	    [ncclInternalError] = "ncclInternalError",
	    [ncclInvalidArgument] = "ncclInvalidArgument",
	    [ncclInvalidUsage] = "ncclInvalidUsage",
	    [ncclRemoteError] = "ncclRemoteError",
	    [ncclInProgress] = "ncclInProgress",
	};

	if ((size_t)result >= sizeof(names) / sizeof(names[0]))
		return "an unknown ncclResult_t";
	return names[result];
}

int np_null_members(const void *table, const struct np_member *members, size_t count, char *buf,
		    size_t len)
{
	size_t used = 0;
	int missing = 0;

	if (len)
		buf[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		void *member;

		memcpy(&member, (const char *)table + members[i].offset, sizeof(member));
		if (member)
			continue;
		missing++;
		if (used < len)
			used += (size_t)snprintf(buf + used, len - used, "%s%s", used ? ", " : "",
						 members[i].name);
	}
	return missing;
}

int np_missing_members(const struct np_plugin *p, enum np_moment moment, char *buf, size_t len)
{
	/*
	 * Those of before init come first. Their order is the same in every version
	 * (asserted below), so v8's names index the table as an array of pointers.
	 */
	enum { BEFORE_INIT = 2 };
#define MEMBER(m)                                                                                  \
	{                                                                                          \
#m, offsetof(ncclNet_v8_t, m)                                                      \
	}
	static const struct np_member required[] = {
	    MEMBER(name),    MEMBER(init),	MEMBER(devices),   MEMBER(getProperties),
	    MEMBER(listen),  MEMBER(connect),	MEMBER(accept),	   MEMBER(regMr),
	    MEMBER(deregMr), MEMBER(isend),	MEMBER(irecv),	   MEMBER(iflush),
	    MEMBER(test),    MEMBER(closeSend), MEMBER(closeRecv), MEMBER(closeListen),
	};
#undef MEMBER
	const size_t count =
	    moment == NP_BEFORE_INIT ? BEFORE_INIT : sizeof(required) / sizeof(required[0]);

	return np_null_members(p->table.any, required, count, buf, len);
}

#define SAME_PLACE(v, m)                                                                           \
	_Static_assert(offsetof(ncclNet_v8_t, m) == offsetof(ncclNet_##v##_t, m), #m)
SAME_PLACE(v9, closeListen);
SAME_PLACE(v10, closeListen);
SAME_PLACE(v11, closeListen);
SAME_PLACE(v12, closeListen);
SAME_PLACE(v9, isend);
SAME_PLACE(v10, isend);
SAME_PLACE(v11, isend);
SAME_PLACE(v12, isend);
