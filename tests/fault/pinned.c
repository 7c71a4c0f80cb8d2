/* SPDX-License-Identifier: Apache-2.0 */
#include "pinned.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PIN_FAULTS 4
#define PIN_SEEDS  4
/* Of one pin: a neighbourhood, not a campaign. */
#define PIN_RUNS_MAX 2000
#define FIELDS	     7
/* Between parts of a cause. */
#define THEN " ... "

struct range {
	uint64_t from, to;
};

struct pin {
	const char *name;
	const char *verdict; /* what the judge says of a run; NULL: that it is right */
	const char *cause;   /* what the log says in these parts, in this order */
	const struct scenario *scenario;
	bool e2e, heal;
	unsigned nseeds, nfaults;
	struct range seeds[PIN_SEEDS];
	struct {
		const struct fault *fault;
		struct range at;
	} faults[PIN_FAULTS];
};

/* What has become of the runs of a pin. */
struct sum {
	unsigned runs;
	unsigned met;	   /* had the cause */
	unsigned expected; /* had it, and were judged as the pin says */
	unsigned other;	   /* were wrong, and not as the pin says */
	char example[1024], other_example[1024], other_verdict[1024];
};

/* ---- reading ------------------------------------------------------------------------------- */

struct parser {
	const char *path;
	unsigned line;
	FILE *out;
};

static bool bad(const struct parser *parser, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

static bool bad(const struct parser *parser, const char *fmt, ...)
{
	va_list args;

	fprintf(parser->out, "%s:%u: ", parser->path, parser->line);
	va_start(args, fmt);
	vfprintf(parser->out, fmt, args);
	va_end(args);
	fputc('\n', parser->out);
	return false;
}

static char *trim(char *text)
{
	size_t n;

	while (isspace((unsigned char)*text))
		text++;
	n = strlen(text);
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		text[--n] = '\0';
	return text;
}

static bool read_number(const char **text, uint64_t *out)
{
	char *end;

	if (!isdigit((unsigned char)**text))
		return false;
	*out = strtoull(*text, &end, 10);
	*text = end;
	return true;
}

/* "7" or "0-20". */
static bool read_range(const struct parser *parser, const char *text, struct range *out)
{
	const char *rest = text;

	if (!read_number(&rest, &out->from))
		return bad(parser, "\"%s\" is not a number or a range such as 0-20", text);
	out->to = out->from;
	if (*rest == '-') {
		rest++;
		if (!read_number(&rest, &out->to))
			return bad(parser, "the range \"%s\" has no end", text);
	}
	if (*rest != '\0')
		return bad(parser, "\"%s\" is not a number or a range such as 0-20", text);
	if (out->to < out->from)
		return bad(parser, "the range \"%s\" ends before it begins", text);
	if (out->to - out->from >= PIN_RUNS_MAX)
		return bad(parser, "the range \"%s\" alone is more than %d runs", text,
			   PIN_RUNS_MAX);
	return true;
}

static bool read_seeds(const struct parser *parser, char *text, struct pin *pin)
{
	char *state, *word = strtok_r(text, " \t", &state);

	for (; word; word = strtok_r(NULL, " \t", &state)) {
		if (pin->nseeds == PIN_SEEDS)
			return bad(parser, "more than %d seeds or ranges of seeds", PIN_SEEDS);
		if (!read_range(parser, word, &pin->seeds[pin->nseeds++]))
			return false;
	}
	return pin->nseeds > 0 || bad(parser, "there is no seed");
}

/* "socket-s@0-20 link-r@3" */
static bool read_faults(const struct parser *parser, char *text, struct pin *pin)
{
	char *state, *word = strtok_r(text, " \t", &state);

	for (; word; word = strtok_r(NULL, " \t", &state)) {
		char *at = strchr(word, '@');

		if (!at)
			return bad(parser, "\"%s\" does not say where, as in socket-s@0-20", word);
		if (pin->nfaults == PIN_FAULTS)
			return bad(parser, "more than %d faults", PIN_FAULTS);
		*at = '\0';
		pin->faults[pin->nfaults].fault = fault_find(word);
		if (!pin->faults[pin->nfaults].fault)
			return bad(parser, "no fault is called \"%s\" (explore --list)", word);
		if (!read_range(parser, at + 1, &pin->faults[pin->nfaults++].at))
			return false;
	}
	return pin->nfaults > 0 || bad(parser, "there is no fault");
}

static bool read_mode(const struct parser *parser, const char *text, struct pin *pin)
{
	static const struct {
		const char *name;
		bool e2e, heal;
	} modes[] = {{"rc", false, false},
		     {"e2e", true, false},
		     {"rc heal", false, true},
		     {"e2e heal", true, true}};

	for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(text, modes[i].name) != 0)
			continue;
		pin->e2e = modes[i].e2e;
		pin->heal = modes[i].heal;
		return true;
	}
	return bad(parser, "the mode is \"%s\", not rc or e2e, with heal behind it or without",
		   text);
}

/* The numbers of a range. */
static uint64_t width(const struct range *range)
{
	return range->to - range->from + 1;
}

static bool is_small(const struct parser *parser, const struct pin *pin)
{
	uint64_t runs = 0;

	for (unsigned i = 0; i < pin->nseeds; i++)
		runs += width(&pin->seeds[i]);
	for (unsigned i = 0; i < pin->nfaults; i++)
		runs *= width(&pin->faults[i].at); /* each at most PIN_RUNS_MAX: it all fits */
	return runs <= PIN_RUNS_MAX ||
	       bad(parser, "%s: more than %d runs: narrow its ranges", pin->name, PIN_RUNS_MAX);
}

static bool split(const struct parser *parser, char *line, char *fields[FIELDS])
{
	unsigned n = 0;
	char *field;

	while ((field = strsep(&line, "|"))) {
		if (n < FIELDS)
			fields[n] = trim(field);
		n++;
	}
	if (n != FIELDS)
		return bad(parser,
			   "%u fields, not %d: name | scenario | rc or e2e | seeds | faults | "
			   "verdict | cause",
			   n, FIELDS);
	for (n = 0; n < FIELDS; n++)
		if (fields[n][0] == '\0')
			return bad(parser, "field %u is empty", n + 1);
	return true;
}

/* Points into `line`, which it cuts up. */
static bool read_pin(const struct parser *parser, char *line, struct pin *pin)
{
	char *fields[FIELDS];

	memset(pin, 0, sizeof(*pin));
	if (!split(parser, line, fields))
		return false;
	pin->name = fields[0];
	pin->scenario = scenario_find(fields[1]);
	if (!pin->scenario)
		return bad(parser, "no scenario is called \"%s\" (explore --list)", fields[1]);
	pin->verdict = strcmp(fields[5], "right") != 0 ? fields[5] : NULL;
	pin->cause = fields[6];
	return read_mode(parser, fields[2], pin) && read_seeds(parser, fields[3], pin) &&
	       read_faults(parser, fields[4], pin) && is_small(parser, pin);
}

/* ---- playing ------------------------------------------------------------------------------- */

/* Whether the parts of a cause are in a log, each behind the one before. */
static bool says(const char *log, const char *cause)
{
	for (;;) {
		const char *end = strstr(cause, THEN);
		size_t length = end ? (size_t)(end - cause) : strlen(cause);

		log = memmem(log, strlen(log), cause, length);
		if (!log || !end)
			return log != NULL;
		log += length;
		cause = end + strlen(THEN);
	}
}

/* What a process that ended had under way is lost; all else has to have come back. */
static bool is_right(const struct run_result *result)
{
	return result->end == RUN_DELIVERED || (result->end == RUN_ERROR && result->healed);
}

static void note(const struct pin *pin, const struct run_spec *spec,
		 const struct run_result *result, const char *log, struct sum *sum)
{
	bool met = result->fired == spec->nfaults && says(log, pin->cause);
	bool wrong = result->end == RUN_WRONG;
	bool expected =
	    pin->verdict ? wrong && strstr(result->wrong, pin->verdict) != NULL : is_right(result);

	sum->runs++;
	sum->met += met;
	if (met && expected && sum->expected++ == 0)
		run_command(spec, sum->example, sizeof(sum->example));
	if (!wrong || (met && expected) || sum->other++ > 0)
		return;
	run_command(spec, sum->other_example, sizeof(sum->other_example));
	snprintf(sum->other_verdict, sizeof(sum->other_verdict), "%s", result->wrong);
}

/* Every place of the faults from this one on. */
static void play_places(const struct pin_player *player, const struct pin *pin, unsigned fault,
			struct run_spec *spec, struct sum *sum)
{
	struct run_result result;

	if (fault == pin->nfaults) {
		const char *log = player->play(player->arg, spec, &result);

		note(pin, spec, &result, log, sum);
		return;
	}
	spec->faults[fault].fault = pin->faults[fault].fault;
	for (uint64_t at = pin->faults[fault].at.from; at <= pin->faults[fault].at.to; at++) {
		spec->faults[fault].at = at;
		play_places(player, pin, fault + 1, spec, sum);
	}
}

static void play(const struct pin_player *player, const struct pin *pin, struct sum *sum)
{
	struct run_spec spec = {.world = {.scenario = pin->scenario, .e2e = pin->e2e},
				.heal = pin->heal,
				.nfaults = pin->nfaults};

	memset(sum, 0, sizeof(*sum));
	for (unsigned i = 0; i < pin->nseeds; i++)
		for (uint64_t seed = pin->seeds[i].from; seed <= pin->seeds[i].to; seed++) {
			spec.world.seed = seed;
			play_places(player, pin, 0, &spec, sum);
		}
}

/* ---- verdict ------------------------------------------------------------------------------- */

/* False: the pin fails. */
static bool judge(const struct parser *parser, const struct pin *pin, const struct sum *sum)
{
	if (sum->other > 0)
		return bad(parser, "%s: %u of %u runs are wrong, and not as pinned: %s\n  %s",
			   pin->name, sum->other, sum->runs, sum->other_verdict,
			   sum->other_example);
	if (sum->met == 0)
		return bad(parser,
			   "%s: moved: none of %u runs meets its cause (%s): find it again with "
			   "--trace and widen the ranges, or show that it cannot come any more",
			   pin->name, sum->runs, pin->cause);
	if (sum->expected == 0 && pin->verdict)
		return bad(parser,
			   "%s: mended: %u of %u runs meet its cause and none is wrong: find out "
			   "what mended it, then have the verdict say \"right\"",
			   pin->name, sum->met, sum->runs);
	if (sum->expected == 0)
		return bad(parser,
			   "%s: %u of %u runs meet its cause and none delivers everything, or "
			   "heals",
			   pin->name, sum->met, sum->runs);
	fprintf(parser->out, "%s: %s in %u of %u runs, %u of which meet its cause; first\n  %s\n",
		pin->name, pin->verdict ? "still wrong" : "right", sum->expected, sum->runs,
		sum->met, sum->example);
	return true;
}

static bool check_line(const struct pin_player *player, const struct parser *parser, char *line)
{
	struct sum sum;
	struct pin pin;

	if (!read_pin(parser, line, &pin))
		return false;
	play(player, &pin, &sum);
	return judge(parser, &pin, &sum);
}

unsigned pinned_check(const struct pin_player *player, const char *path, FILE *in, FILE *out)
{
	struct parser parser = {.path = path, .out = out};
	unsigned failed = 0, pins = 0;
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, in) >= 0) {
		char *text = trim(line);

		parser.line++;
		if (*text == '\0' || *text == '#')
			continue;
		pins++;
		failed += !check_line(player, &parser, text);
		fflush(out);
	}
	free(line);
	if (pins == 0)
		failed += !bad(&parser, "there is no pin in it");
	return failed;
}
