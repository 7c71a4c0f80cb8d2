/* SPDX-License-Identifier: Apache-2.0 */
/* Setting a side's environment variables and putting back what was there. */
#include "tools/nccl-net-perf/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of a pair, to be freed. */
static char *name_of(const char *pair)
{
	return strndup(pair, (size_t)(strchrnul(pair, '=') - pair));
}

bool np_settings_add(struct np_settings *s, const char *pair)
{
	const char *equals = strchr(pair, '=');

	if (!equals || equals == pair || s->count == NP_MAX_SETTINGS)
		return false;
	s->pairs[s->count++] = pair;
	return true;
}

/* To be freed; NULL: no memory. */
static char *value_for(const char *pair, int rank)
{
	static const char mark[] = "{rank}";
	const char *value = strchr(pair, '=') + 1, *at = strstr(value, mark);
	char *out;

	if (!at)
		return strdup(value);
	if (asprintf(&out, "%.*s%d%s", (int)(at - value), value, rank, at + sizeof(mark) - 1) < 0)
		return NULL;
	return out;
}

static bool apply_one(const char *pair, int rank, char **hidden)
{
	char *name = name_of(pair), *value = value_for(pair, rank), *old;
	bool ok = false;

	*hidden = NULL;
	if (name && value) {
		old = getenv(name);
		*hidden = old ? strdup(old) : NULL;
		ok = (!old || *hidden) && setenv(name, value, 1) == 0;
	}
	if (!ok)
		free(*hidden);
	free(value);
	free(name);
	return ok;
}

static void restore_one(const char *pair, char *hidden)
{
	char *name = name_of(pair);

	if (name && hidden)
		(void)setenv(name, hidden, 1);
	else if (name)
		(void)unsetenv(name);
	free(name);
	free(hidden);
}

/* Backwards, so that a name that comes twice ends up as it was. */
static void restore(const struct np_settings *s, struct np_hidden *hidden, int count)
{
	while (count-- > 0)
		restore_one(s->pairs[count], hidden->values[count]);
}

bool np_settings_apply(const struct np_settings *s, int rank, struct np_hidden *hidden)
{
	for (int i = 0; i < s->count; i++)
		if (!apply_one(s->pairs[i], rank, &hidden->values[i])) {
			restore(s, hidden, i);
			return false;
		}
	return true;
}

void np_settings_restore(const struct np_settings *s, struct np_hidden *hidden)
{
	restore(s, hidden, s->count);
}
