/* SPDX-License-Identifier: Apache-2.0 */
/* The table of variables as documentation. `ninja update-docs` writes it to docs. */
#include "base/config_doc.h"

#include "base/config.h"
#include "base/config_foreign.h"

#include <string.h>

static const char *const group_titles[HA_GROUP_COUNT] = {
    [HA_GROUP_SWITCH] = "Switches",
    [HA_GROUP_SECURITY] = "Who may take part",
    [HA_GROUP_RECOVERY] = "Failure detection and recovery",
    [HA_GROUP_PROGRESS] = "Progress",
    [HA_GROUP_QP] = "Queue pairs",
    [HA_GROUP_RAILS] = "Several ports as one device",
    [HA_GROUP_INC] = "All-reduces in the network",
    [HA_GROUP_BUDGET] = "Resource budget",
    [HA_GROUP_DIAGNOSTICS] = "Diagnostics",
    [HA_GROUP_NCCL] = "NCCL's own variables",
};

const char *ha_config_group_title(enum ha_config_group group)
{
	return group_titles[group];
}

static const char *values_text(const struct ha_config_var *var, char *buf, size_t size)
{
	return var->type == HA_TYPE_STRING ? "text" : ha_config_expectation(var, buf, size);
}

static const char *no_effect_text(const struct ha_config_var *var, const char *text)
{
	return var->no_effect_yet ? text : "";
}

/* ---- Markdown ------------------------------------------------------------------------------- */

/* "Alias of HA_NCCL_RAILS, which wins: ", or nothing. Returns buf. */
static const char *alias_text(const struct ha_config_var *var, char *buf, size_t size)
{
	buf[0] = '\0';
	if (var->alias)
		snprintf(buf, size, "Alias of %s, which wins: ", var->alias);
	return buf;
}

static void write_row(FILE *out, const struct ha_config_var *var)
{
	char expected[160], fallback[64], alias[80];

	fprintf(out, "| `%s` | %s | %s | %s%s%s |\n", var->name,
		values_text(var, expected, sizeof expected),
		ha_config_default_text(var, fallback, sizeof fallback),
		no_effect_text(var, "**No effect in this version.** "),
		alias_text(var, alias, sizeof alias), var->help);
}

static void write_foreign(FILE *out)
{
	fputs("\n## NCCL's variables without effect\n\n"
	      "NCCL's own IB transport (2.30.7) reads these as well; here they change nothing. One "
	      "that\n"
	      "is set to something else than what is so anyway is told once, at level INFO. Those "
	      "of\n"
	      "NCCL itself, such as `NCCL_NET_GDR_LEVEL` or `NCCL_DMABUF_ENABLE`, keep their "
	      "meaning.\n\n"
	      "| variable | what is so |\n|---|---|\n",
	      out);
	for (size_t i = 0; i < ha_config_nforeign; i++)
		fprintf(out, "| `%s` | %s |\n", ha_config_foreign[i].name,
			ha_config_foreign[i].why);
}

void ha_config_write_markdown(FILE *out)
{
	fputs(
	    "# Configuration\n\n"
	    "<!-- Generated from src/base/config_table.c by `ninja update-docs`: edit there. "
	    "-->\n\n"
	    "All configuration is by environment variable, read once when NCCL initialises the\n"
	    "plugin. A variable that is empty counts as not set. A value that cannot be used is\n"
	    "reported by one warning that names the variable, the value and the default used\n"
	    "instead; it stops no job, but for those under \"Who may take part\". Numbers may be "
	    "decimal, hexadecimal (0x) or octal "
	    "(0).\n"
	    "\n"
	    "A queue pair's retransmission timeout is `HA_NCCL_FORCE_IB_TIMEOUT` if set, else\n"
	    "`NCCL_IB_TIMEOUT` if set, else `HA_NCCL_QP_TIMEOUT`. Its retry count is\n"
	    "`NCCL_IB_RETRY_CNT` if set, else `HA_NCCL_QP_RETRY_CNT`. Where there is no failover\n"
	    "the default of `HA_NCCL_QP_TIMEOUT` is NCCL's own, 20.\n"
	    "\n"
	    "With no path left a connection gives up after `HA_NCCL_OUTAGE_MS` if set, else\n"
	    "`HA_NCCL_MAX_RETRIES` × `HA_NCCL_RTO_MS` if the first of these is set, else after\n"
	    "60 s, or what NCCL's own transport may bear with the same `NCCL_IB_TIMEOUT` and\n"
	    "`NCCL_IB_RETRY_CNT` if that is longer: 2 × 4.096 µs × 2^timeout × (retries + 1), 69 "
	    "s\n"
	    "with NCCL's defaults ([why](tuning.md#how-long-an-outage-may-last)). A setting that\n"
	    "is shorter than NCCL's gets one warning.\n"
	    "\n"
	    "`nccl-ha config` shows what this shell's environment comes to, and with `--pid` "
	    "what a\n"
	    "running process uses and where each value came from.\n",
	    out);
	for (int group = 0; group < HA_GROUP_COUNT; group++) {
		fprintf(out,
			"\n## %s\n\n| variable | values | default | meaning |\n|---|---|---|---|\n",
			group_titles[group]);
		for (size_t i = 0; i < ha_config_nvars; i++)
			if ((int)ha_config_vars[i].group == group)
				write_row(out, &ha_config_vars[i]);
	}
	write_foreign(out);
}

/* ---- a manual page -------------------------------------------------------------------------- */

/* A line of text: what roff would take for a request or an escape is text as well. */
static void write_roff(FILE *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
	for (; *text; text++) {
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else
			putc(*text, out);
	}
}

static void write_entry(FILE *out, const struct ha_config_var *var)
{
	char expected[160], fallback[64], alias[80];

	fprintf(out, ".TP\n.B %s\n", var->name);
	write_roff(out, no_effect_text(var, "No effect in this version. "));
	write_roff(out, alias_text(var, alias, sizeof alias));
	write_roff(out, var->help);
	fputs("\n.br\nValues: ", out);
	write_roff(out, values_text(var, expected, sizeof expected));
	fputs(". Default: ", out);
	write_roff(out, ha_config_default_text(var, fallback, sizeof fallback));
	fputs(".\n", out);
}

void ha_config_write_man(FILE *out)
{
	fputs(
	    ".\\\" SPDX-License-Identifier: Apache-2.0\n"
	    ".\\\" Generated from src/base/config_table.c by `ninja update-docs`: edit there.\n"
	    ".TH NCCL-HA-CONFIG 7 \"2026-11-22\" \"nccl-ha\" \"Environment\"\n"
	    ".SH NAME\n"
	    "nccl-ha-config \\- environment variables of the network plugin nccl-ha\n"
	    ".SH DESCRIPTION\n"
	    "The variables are read once, when NCCL initialises the plugin. One that is empty\n"
	    "counts as not set. A value that cannot be used is reported by one warning that names\n"
	    "the variable, the value and the default used instead; it stops no job, but for those "
	    "under \"Who may take part\". Numbers\n"
	    "may be decimal, hexadecimal (0x) or octal (0).\n"
	    ".PP\n"
	    ".B nccl\\-ha config\n"
	    "shows the values of an environment and of running processes.\n",
	    out);
	for (int group = 0; group < HA_GROUP_COUNT; group++) {
		fprintf(out, ".SH \"%s\"\n", group_titles[group]);
		for (size_t i = 0; i < ha_config_nvars; i++)
			if ((int)ha_config_vars[i].group == group)
				write_entry(out, &ha_config_vars[i]);
	}
	fputs(".SH \"NCCL's variables without effect\"\n"
	      "NCCL's own IB transport (2.30.7) reads these as well; here they change nothing.\n",
	      out);
	for (size_t i = 0; i < ha_config_nforeign; i++) {
		fprintf(out, ".TP\n.B %s\n", ha_config_foreign[i].name);
		write_roff(out, ha_config_foreign[i].why);
		fputs(".\n", out);
	}
	fputs(".SH \"SEE ALSO\"\n.BR nccl\\-ha (1)\n", out);
}
