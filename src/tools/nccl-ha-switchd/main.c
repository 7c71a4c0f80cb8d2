/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha-switchd: adds at a switch, for all-reduces in the network. */
#include "base/version.h"
#include "tools/common/ends.h"
#include "tools/nccl-ha-switchd/check.h"
#include "tools/nccl-ha-switchd/groups.h"
#include "tools/nccl-ha-switchd/server.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE   2
#define NAME_MOST    63
#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"

struct arguments {
	struct ns_settings settings;
	bool check;
};

static const struct argp_option options[] = {
    {"switch", 's', "NAME", 0, "Which switch of the controller's topology this is", 0},
    {"connect", 'a', "ADDRESS:PORT", 0, "The controller", 0},
    {"key-file", 'k', "FILE", 0, "The site's key: 32 bytes that nobody else can read", 0},
    {"device", 'd', "DEVICE[:PORT]", 0,
     "The RDMA device to add at (default: the only port that is up)", 1},
    {"listen", 'l', "ADDRESS:PORT", 0,
     "Where hosts join (default: any port of the address from which the controller is reached)", 1},
    {"threads", 't', "NUMBER", 0, "How many threads add (default: 1)", 1},
    {"pin", 'p', NULL, 0, "Keep each thread on a processor of its own", 1},
    {"check", 'c', NULL, 0, "Say whether it could serve, and end", 2},
    {0},
};

static const char doc[] =
    "Adds at a switch, for all-reduces in the network.\v"
    "It serves groups as the controller tells it to, until it is ended. See nccl-ha-switchd(1).";

static void check_arguments(const struct arguments *a, struct argp_state *state)
{
	const struct ns_settings *s = &a->settings;

	if (!s->name || !s->controller || !s->key_file)
		argp_error(state, "say --switch, --connect and --key-file");
	if (s->name && (strlen(s->name) == 0 || strlen(s->name) > NAME_MOST ||
			strspn(s->name, NAME_LETTERS) != strlen(s->name)))
		argp_error(state, "--switch=%s is no name: 1 to %d letters, digits and . _ - : are",
			   s->name, NAME_MOST);
}

static unsigned parse_threads(const char *arg, struct argp_state *state)
{
	const unsigned long n = strtoul(arg, NULL, 10);

	if (strspn(arg, "0123456789") != strlen(arg) || n < 1 || n > NS_THREADS_MOST)
		argp_error(state, "--threads=%s is not a number from 1 to %d", arg,
			   NS_THREADS_MOST);
	return (unsigned)n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 's':
		a->settings.name = arg;
		return 0;
	case 'a':
		a->settings.controller = arg;
		return 0;
	case 'k':
		a->settings.key_file = arg;
		return 0;
	case 'd':
		a->settings.device = arg;
		return 0;
	case 'l':
		a->settings.listen = arg;
		return 0;
	case 't':
		a->settings.threads = parse_threads(arg, state);
		return 0;
	case 'p':
		a->settings.is_pinned = true;
		return 0;
	case 'c':
		a->check = true;
		return 0;
	case ARGP_KEY_END:
		check_arguments(a, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};

int main(int argc, char **argv)
{
	static struct arguments a = {.settings.threads = 1};
	static char version[64];

	snprintf(version, sizeof(version), "nccl-ha-switchd %s", ha_version);
	argp_program_version = version;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.check)
		return ns_check(&a.settings);
	ends_hold();
	return ns_serve(&a.settings);
}
