/* SPDX-License-Identifier: Apache-2.0 */
/* simverbs link, simverbs cut, simverbs device: breaking and mending by hand. */
#include "tools/simverbs/tool.h"

#include <stdio.h>
#include <string.h>

#define BIT(kind) (1u << (kind))

/* --- link and device: NAME HOST RAIL WORD --------------------------------------------------- */

struct port_args {
	const char *words[3]; /* what WORD may be; NULL: none */
	uint32_t kinds[3];    /* and what it means */
	const char *name;
	unsigned host, rail;
	bool takes_port;
	uint32_t phys; /* from 0, SV_ANY: all */
	int choice;
};

static int choice_of(const struct port_args *args, const char *word)
{
	for (int i = 0; i < 3 && args->words[i]; i++)
		if (!strcmp(word, args->words[i]))
			return i;
	return -1;
}

/* RAIL, or RAIL.PORT for one port of a device that has several. */
static void parse_rail(struct argp_state *state, char *arg, struct port_args *args)
{
	char *port = args->takes_port ? strchr(arg, '.') : NULL;

	args->phys = SV_ANY;
	if (port) {
		*port++ = '\0';
		args->phys = np_number(state, port, "PORT", SV_MAX_PHYS + 1) - 1;
		if (args->phys == SV_ANY)
			argp_error(state, "PORT counts from 1");
	}
	args->rail = np_number(state, arg, "RAIL", SV_MAX_RAILS);
}

static error_t parse_port(int key, char *arg, struct argp_state *state)
{
	struct port_args *args = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		if (state->arg_num == 0) {
			args->name = arg;
		} else if (state->arg_num == 1) {
			args->host = np_number(state, arg, "HOST", SV_MAX_HOSTS);
		} else if (state->arg_num == 2) {
			parse_rail(state, arg, args);
		} else if (state->arg_num == 3) {
			args->choice = choice_of(args, arg);
			if (args->choice < 0)
				argp_error(state, "'%s' must be %s or %s%s%s", arg, args->words[0],
					   args->words[1], args->words[2] ? " or " : "",
					   args->words[2] ? args->words[2] : "");
		} else {
			argp_usage(state);
		}
		return 0;
	case ARGP_KEY_END:
		if (state->arg_num != 4)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int change_port(const struct port_args *args)
{
	struct sv_fabric fab;
	int rc = NP_EXIT_OK;

	if (!np_open_fabric(args->name, &fab))
		return NP_EXIT_FAILED;
	if (!np_in_fabric(&fab, args->host, args->rail)) {
		rc = NP_EXIT_USAGE;
	} else if (args->phys != SV_ANY && args->phys >= fab.h->num_phys) {
		fprintf(stderr, "simverbs: devices of fabric %s have ports 1 to %u, not %u\n",
			fab.h->name, fab.h->num_phys, args->phys + 1);
		rc = NP_EXIT_USAGE;
	} else {
		sv_state_set(&fab, args->host, args->rail, args->phys, args->kinds[args->choice]);
	}
	sv_fabric_close(&fab);
	return rc;
}

int np_cmd_link(int argc, char **argv)
{
	static const struct argp argp = {
	    NULL,
	    parse_port,
	    "NAME HOST RAIL[.PORT] up|down|off",
	    "Plugs or pulls the cable of a port (without PORT, of all ports of the device), or "
	    "sets the port down at its host. The host sees the port change (with --profile mlx5 a "
	    "pulled cable up to a second later); the other ends see nothing but packets that do "
	    "not come.",
	    NULL,
	    NULL,
	    NULL};
	struct port_args args = {
	    .takes_port = true,
	    .words = {"down", "up", "off"},
	    .kinds = {BIT(SV_FAULT_LINK_DOWN), BIT(SV_FAULT_LINK_UP), BIT(SV_FAULT_LINK_OFF)}};

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	return change_port(&args);
}

int np_cmd_device(int argc, char **argv)
{
	static const struct argp argp = {
	    NULL,
	    parse_port,
	    "NAME HOST RAIL kill|disassociate|revive",
	    "Kills a device: programs that have it open get a device-fatal event and EIO from "
	    "every verb that is no release. With disassociate the kernel takes it away as when "
	    "its driver is unbound: EIO from every command first, destroy included, then its "
	    "queue pairs end, then comes the event. After revive it can be opened again.",
	    NULL,
	    NULL,
	    NULL};
	struct port_args args = {
	    .words = {"kill", "disassociate", "revive"},
	    .kinds = {BIT(SV_FAULT_KILL), BIT(SV_FAULT_DISASSOCIATE), BIT(SV_FAULT_REVIVE)}};

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	return change_port(&args);
}

/* --- leg ------------------------------------------------------------------------------------ */

struct leg_args {
	const char *name;
	unsigned host, rail, leg;
	uint32_t kind;
};

static error_t parse_leg(int key, char *arg, struct argp_state *state)
{
	struct leg_args *args = state->input;

	if (key == ARGP_KEY_END && state->arg_num != 5)
		argp_usage(state);
	if (key != ARGP_KEY_ARG)
		return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
	switch (state->arg_num) {
	case 0:
		args->name = arg;
		return 0;
	case 1:
		args->host = np_number(state, arg, "HOST", SV_MAX_HOSTS);
		return 0;
	case 2:
		args->rail = np_number(state, arg, "RAIL", SV_MAX_RAILS);
		return 0;
	case 3:
		args->leg = np_number(state, arg, "LEG", SV_LEGS);
		return 0;
	case 4:
		args->kind = !strcmp(arg, "down")    ? SV_FAULT_LEG_DOWN
			     : !strcmp(arg, "remap") ? SV_FAULT_LEG_REMAP
			     : !strcmp(arg, "up")    ? SV_FAULT_LEG_UP
						     : SV_FAULT_NONE;
		if (args->kind == SV_FAULT_NONE)
			argp_error(state, "'%s' must be down, remap or up", arg);
		return 0;
	default:
		argp_usage(state);
		return 0;
	}
}

int np_cmd_leg(int argc, char **argv)
{
	static const struct argp argp = {
	    NULL,
	    parse_leg,
	    "NAME HOST RAIL LEG down|remap|up",
	    "Kills one of the two cables of a device that is a bond: its port stays up, nobody is "
	    "told, and what the queue pairs on that leg send goes nowhere. remap: the driver moves "
	    "them to the other leg.",
	    NULL,
	    NULL,
	    NULL};
	struct leg_args args = {0};
	struct sv_fabric fab;
	int rc = NP_EXIT_OK;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (!np_open_fabric(args.name, &fab))
		return NP_EXIT_FAILED;
	if (np_in_fabric(&fab, args.host, args.rail))
		sv_state_leg(&fab, args.host, args.rail, args.leg, args.kind);
	else
		rc = NP_EXIT_USAGE;
	sv_fabric_close(&fab);
	return rc;
}

/* --- cut ------------------------------------------------------------------------------------ */

struct cut_args {
	const char *name;
	unsigned rail;
	uint32_t host;
	uint32_t cut;
	bool heal;
};

static error_t parse_cut(int key, char *arg, struct argp_state *state)
{
	struct cut_args *args = state->input;

	switch (key) {
	case 'e':
		args->heal = true;
		return 0;
	case 'H':
		args->host = np_number(state, arg, "--host", SV_MAX_HOSTS);
		return 0;
	case 'd':
		args->cut = !strcmp(arg, "from") ? SV_CUT_FROM_DEVICE : SV_CUT_TO_DEVICE;
		if (strcmp(arg, "from") && strcmp(arg, "to"))
			argp_error(state, "--direction must be from or to, not '%s'", arg);
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0)
			args->name = arg;
		else if (state->arg_num == 1)
			args->rail = np_number(state, arg, "RAIL", SV_MAX_RAILS);
		else
			argp_usage(state);
		return 0;
	case ARGP_KEY_END:
		if (state->arg_num != 2)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int np_cmd_cut(int argc, char **argv)
{
	static const struct argp_option options[] = {
	    {"heal", 'e', NULL, 0, "Mend it", 0},
	    {"host", 'H', "HOST", 0, "Only what this host sends and receives", 0},
	    {"direction", 'd', "from|to", 0, "Only what comes from, or goes to, the host(s)", 0},
	    {0},
	};
	static const struct argp argp = {
	    options,
	    parse_cut,
	    "NAME RAIL",
	    "Cuts a rail inside its switch: packets vanish, every port stays up and nobody is "
	    "told.",
	    NULL,
	    NULL,
	    NULL};
	struct cut_args args = {.host = SV_ANY, .cut = SV_CUT_BOTH};
	struct sv_fabric fab;
	int rc = NP_EXIT_OK;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (!np_open_fabric(args.name, &fab))
		return NP_EXIT_FAILED;
	if (np_in_fabric(&fab, args.host == SV_ANY ? 0 : args.host, args.rail))
		sv_state_cut(&fab, args.host, args.rail, args.heal ? 0 : args.cut);
	else
		rc = NP_EXIT_USAGE;
	sv_fabric_close(&fab);
	return rc;
}
