/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an event log, and any text as what is asked of it: lines that are no events are
 * passed over, and what is printed is lines of text that a terminal does not obey.
 *
 * Input: byte 0 how it is asked for (bits), then up to a line feed the filter, then the log.
 */
#include "fuzz.h"

#include "tools/nccl-ha/events.c"

enum { AS_JSON = 1, BY_KIND = 2, BY_TIME = 4, BY_CONNECTION = 8, BY_REASON = 16, BY_RANK = 32 };

#define EVENT                                                                                      \
	"{\"v\":1,\"time\":\"2026-11-22T06:30:00.125Z\",\"host\":\"a\",\"pid\":7,\"rank\":3,"      \
	"\"kind\":\"switch\",\"connection\":\"7b1c0d2e4f5a6978\",\"name\":\"send 7b\","            \
	"\"from\":{\"port\":\"mlx5_0:1\",\"path\":0,\"generation\":1},"                            \
	"\"to\":{\"port\":\"mlx5_1:1\",\"path\":1,\"generation\":2},\"reason\":\"retry_"           \
	"exceeded\","                                                                              \
	"\"detail\":\"vendor error 0x81\",\"detection_ms\":1.5,\"blackout_ms\":2e3,"               \
	"\"replayed_messages\":12}\n"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("\x00\n" EVENT EVENT),
    FUZZ_TEXT("\x01\n" EVENT "no event\n" EVENT),
    FUZZ_TEXT("\x02"
	      "failure,switch,latch\n" EVENT),
    FUZZ_TEXT("\x04"
	      "2026-11-22T06\n" EVENT),
    FUZZ_TEXT("\x04"
	      "10m\n" EVENT),
    FUZZ_TEXT("\x08"
	      "7b1c\n" EVENT),
    FUZZ_TEXT("\x10retry\n" EVENT),
    FUZZ_TEXT("\x20\n" EVENT "{\"time\":\"\\u001b[2J\\u009b1m\xc2\x9b\",\"rank\":3}\n"),
    FUZZ_TEXT("\x01\n{\"time\":\"\xc2\x9b[2J\",\"host\":\"\xe2\x80\xae\",\"detection_ms\":-0.0,"
	      "\"blackout_ms\":1e308,\"pid\":9223372036854775807}\n[1]\n{}\nnull\n"),
    {NULL, 0},
};

static const char *filter_of(const uint8_t *data, size_t size, char *text, size_t room)
{
	size_t length = size < room - 1 ? size : room - 1;

	memcpy(text, data, length);
	text[length] = '\0';
	return text;
}

static void set_filter(struct arguments *a, uint8_t how, const char *text)
{
	const char *wrong = NULL;

	a->json = how & AS_JSON;
	if (how & BY_KIND)
		wrong = nh_event_filter_kinds(&a->filter, text);
	if (how & BY_TIME)
		wrong = nh_event_filter_since(&a->filter, text);
	if (how & BY_CONNECTION)
		a->filter.connection = text;
	if (how & BY_REASON)
		a->filter.reason = text;
	if (how & BY_RANK)
		a->filter.rank = 3;
	FUZZ_CHECK(!wrong || *wrong);
}

/* Lines as nh_logs_read cuts them. */
static void take_lines(struct batch *batch, const uint8_t *log, size_t size)
{
	while (size > 0) {
		const uint8_t *end = memchr(log, '\n', size);
		size_t length = end ? (size_t)(end - log) : size;
		char *line = malloc(length + 1);

		FUZZ_CHECK(line);
		memcpy(line, log, length);
		line[length] = '\0';
		take_line(batch, "log", line);
		free(line);
		size -= length + (end != NULL);
		log += length + (end != NULL);
	}
}

/* In UTF-8 C1 controls are C2 80 to C2 9F. */
static void check_printed(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];

		FUZZ_CHECK(c >= ' ' || c == '\n' || c == '\t' || c == '\r');
		FUZZ_CHECK(c != 0xc2 || i + 1 == length || (unsigned char)text[i + 1] > 0x9f);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arguments a = {.filter = NH_EVENT_FILTER_NONE};
	struct batch batch = {.a = &a, .command = "fuzz"};
	FILE *really = stdout, *errors = stderr;
	const uint8_t *end;
	size_t length = 0;
	char *printed = NULL, filter[200];

	if (size < 2)
		return 0;
	end = memchr(data + 1, '\n', size - 1);
	if (!end)
		return 0;
	set_filter(&a, data[0],
		   filter_of(data + 1, (size_t)(end - data - 1), filter, sizeof(filter)));
	stdout = open_memstream(&printed, &length);
	FUZZ_CHECK(stdout);
	stderr = stdout; /* complaints, too */
	take_lines(&batch, end + 1, size - (size_t)(end + 1 - data));
	print_batch(&batch);
	fclose(stdout);
	stdout = really;
	stderr = errors;
	check_printed(printed, length);
	free(printed);
	free(batch.entries);
	return 0;
}
