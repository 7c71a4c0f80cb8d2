/* SPDX-License-Identifier: Apache-2.0 */
/* How answers are written: names instead of numbers, one line each. */
#include "probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static unsigned given;

void answer(const char *name, const char *format, ...)
{
	va_list args;

	printf("%s = ", name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	given++;
}

unsigned answers_given(void)
{
	return given;
}

void complain(const char *format, ...)
{
	va_list args;
	int error = errno;

	fflush(stdout);
	fprintf(stderr, "probe: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (errno %s)\n", errno_name(error));
}

void ask_driver(const char *what)
{
	char line[128];

	printf("! %s\n", what);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin) || strcmp(line, "done\n") != 0)
		give_up("the driver did not do '%s'", what);
}

void add_word(struct words *words, const char *format, ...)
{
	size_t left = sizeof(words->text) - words->used;
	va_list args;
	int n;

	if (words->used && left > 1) {
		words->text[words->used++] = ' ';
		left--;
	}
	va_start(args, format);
	n = vsnprintf(words->text + words->used, left, format, args);
	va_end(args);
	if (n > 0)
		words->used += (size_t)n < left ? (size_t)n : left - 1;
}

const char *words_text(const struct words *words)
{
	return words->used ? words->text : "none";
}

const char *errno_name(int error)
{
	const char *name = error ? strerrorname_np(error) : "0";

	return name ? name : "unknown";
}

const char *status_name(enum ibv_wc_status status)
{
	static const char *const names[] = {
	    [IBV_WC_SUCCESS] = "SUCCESS",
	    [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
	    [IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
	    [IBV_WC_LOC_EEC_OP_ERR] = "LOC_EEC_OP_ERR",
	    [IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
	    [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
	    [IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
	    [IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR",
	    [IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
	    [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
	    [IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
	    [IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
	    [IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
	    [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
	    [IBV_WC_FATAL_ERR] = "FATAL_ERR",
	    [IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
	};
	size_t i = (size_t)status;

	return i < sizeof(names) / sizeof(names[0]) && names[i] ? names[i] : "unknown";
}

const char *event_name(enum ibv_event_type type)
{
	static const char *const names[] = {
	    [IBV_EVENT_CQ_ERR] = "CQ_ERR",
	    [IBV_EVENT_QP_FATAL] = "QP_FATAL",
	    [IBV_EVENT_QP_REQ_ERR] = "QP_REQ_ERR",
	    [IBV_EVENT_QP_ACCESS_ERR] = "QP_ACCESS_ERR",
	    [IBV_EVENT_COMM_EST] = "COMM_EST",
	    [IBV_EVENT_SQ_DRAINED] = "SQ_DRAINED",
	    [IBV_EVENT_DEVICE_FATAL] = "DEVICE_FATAL",
	    [IBV_EVENT_PORT_ACTIVE] = "PORT_ACTIVE",
	    [IBV_EVENT_PORT_ERR] = "PORT_ERR",
	    [IBV_EVENT_LID_CHANGE] = "LID_CHANGE",
	    [IBV_EVENT_PKEY_CHANGE] = "PKEY_CHANGE",
	    [IBV_EVENT_SM_CHANGE] = "SM_CHANGE",
	    [IBV_EVENT_SRQ_ERR] = "SRQ_ERR",
	    [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ_LIMIT_REACHED",
	    [IBV_EVENT_QP_LAST_WQE_REACHED] = "QP_LAST_WQE_REACHED",
	    [IBV_EVENT_CLIENT_REREGISTER] = "CLIENT_REREGISTER",
	    [IBV_EVENT_GID_CHANGE] = "GID_CHANGE",
	};
	size_t i = (size_t)type;

	return i < sizeof(names) / sizeof(names[0]) && names[i] ? names[i] : "unknown";
}

const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	size_t i = (size_t)state;

	return i < sizeof(names) / sizeof(names[0]) ? names[i] : "unknown";
}

const char *port_state_name(enum ibv_port_state state)
{
	static const char *const names[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE"};
	size_t i = (size_t)state;

	return i < sizeof(names) / sizeof(names[0]) ? names[i] : "unknown";
}

const char *wc_opcode_name(enum ibv_wc_opcode opcode)
{
	switch (opcode) {
	case IBV_WC_SEND:
		return "SEND";
	case IBV_WC_RDMA_WRITE:
		return "RDMA_WRITE";
	case IBV_WC_RDMA_READ:
		return "RDMA_READ";
	case IBV_WC_COMP_SWAP:
		return "COMP_SWAP";
	case IBV_WC_FETCH_ADD:
		return "FETCH_ADD";
	case IBV_WC_RECV:
		return "RECV";
	case IBV_WC_RECV_RDMA_WITH_IMM:
		return "RECV_RDMA_WITH_IMM";
	default:
		return "other";
	}
}

double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void sleep_ms(unsigned ms)
{
	struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&rest, &rest) && errno == EINTR)
		;
}
