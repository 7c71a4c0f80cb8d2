/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A script of random faults that always leave one path: each host keeps at least one port that
 * nothing is wrong with, and any port reaches any other. The same seed gives the same script.
 */
#include "drill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HOSTS 4
#define MAX_RAILS 8

/* What is wrong now, and when that ends. A rail that is cut is wrong at every host. */
struct ports {
	int hosts, rails;
	double broken_until[MAX_HOSTS][MAX_RAILS];
};

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static int pick(uint64_t *state, int n)
{
	return (int)(next_random(state) % (uint64_t)n);
}

static int sound_ports(const struct ports *p, int host, double now)
{
	int sound = 0;

	for (int rail = 0; rail < p->rails; rail++)
		sound += p->broken_until[host][rail] <= now;
	return sound;
}

/* Whether a rail may fail at a host (-1: all), as it is not broken there and another one is left.
 */
static bool may_break(const struct ports *p, int host, int rail, double now)
{
	for (int h = 0; h < p->hosts; h++) {
		if (host >= 0 && h != host)
			continue;
		if (p->broken_until[h][rail] > now || sound_ports(p, h, now) < 2)
			return false;
	}
	return true;
}

static void mark_broken(struct ports *p, int host, int rail, double until)
{
	for (int h = 0; h < p->hosts; h++)
		if (host < 0 || h == host)
			p->broken_until[h][rail] = until;
}

/* Both lines of a fault, what breaks and what mends it. */
static void print_fault(FILE *f, uint64_t *state, int host, int rail, double at, double until)
{
	static const char *const directions[] = {"", " --direction from", " --direction to"};

	if (host < 0) {
		fprintf(f, "%.0f cut %d\n%.0f cut %d --heal\n", at, rail, until, rail);
	} else if (pick(state, 2)) {
		fprintf(f, "%.0f link %d %d down\n%.0f link %d %d up\n", at, host, rail, until,
			host, rail);
	} else {
		fprintf(f, "%.0f cut %d --host %d%s\n%.0f cut %d --host %d --heal\n", at, rail,
			host, directions[pick(state, 3)], until, rail, host);
	}
}

char *drill_soak_script(double seconds, unsigned seed, int hosts, int rails)
{
	struct ports p = {.hosts = hosts, .rails = rails};
	uint64_t state = seed;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	/* The first moments are for connections to find their standbys. */
	for (double at = 1500; f && at < seconds * 1000; at += 20 + pick(&state, 800)) {
		/* Short and long, from a blink to well beyond every timer. */
		double until =
		    at + (pick(&state, 3) ? 20 + pick(&state, 300) : 500 + pick(&state, 2500));
		int host = pick(&state, hosts + 1) - 1, rail = pick(&state, rails);

		if (!may_break(&p, host, rail, at))
			continue;
		/* It takes a moment until a mended port is known to be so: count it as broken. */
		mark_broken(&p, host, rail, until + 100);
		print_fault(f, &state, host, rail, at, until);
	}
	if (f)
		fclose(f);
	return text;
}
