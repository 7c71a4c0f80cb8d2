/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a process answers the operator's tool: it is refused with a reason, or gives
 * connections whose fields are within their ranges and whose texts end.
 */
#include "fuzz.h"

#include "tools/nccl-ha/ask.c"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("nccl-ha 1 ok\nend 0\n"),
    FUZZ_TEXT("nccl-ha 1 ok\n"
	      "connection 7b1c0d2e4f5a6978 send moving 1.3 mlx5_0:1 4 elsewhere\n"
	      "connection 0000000000000001 recv home 0.1 - 1 home\n"
	      "connection 2 recv refused 0.1 rxe0:1 4294967295 home no other path works\nend 3\n"),
    FUZZ_TEXT("nccl-ha 1 error this process has no such port\n"),
    FUZZ_TEXT("nccl-ha 1 error \n"),
    FUZZ_TEXT("nccl-ha 2 ok\nend 0\n"),
    FUZZ_TEXT("nccl-ha 1 ok\nend 18446744073709551616\n"),
    {NULL, 0},
};

#define CHECK_STRING(s) FUZZ_CHECK(memchr((s), '\0', sizeof(s)) != NULL)

static void check_connection(const struct nh_asked *c)
{
	FUZZ_CHECK((unsigned)c->fate < NH_FATE_COUNT);
	CHECK_STRING(c->at.path);
	CHECK_STRING(c->at.port);
	CHECK_STRING(c->why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nh_answer answer;
	char err[64] = "", *text = malloc(size + 1);

	FUZZ_CHECK(text);
	memcpy(text, data, size);
	text[size] = '\0'; /* as it is read from the socket */
	if (parse_answer(text, &answer, err, sizeof(err)))
		for (size_t i = 0; i < answer.n; i++)
			check_connection(&answer.connections[i]);
	else
		FUZZ_CHECK(err[0] != '\0');
	CHECK_STRING(err);
	for (const char *c = err; *c; c++) /* a terminal obeys none of it */
		FUZZ_CHECK((unsigned char)*c >= ' ' && *c != 0x7f);
	nh_answer_free(&answer);
	free(text);
	return 0;
}
