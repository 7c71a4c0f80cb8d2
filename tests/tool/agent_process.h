/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha-agent as it is, in a directory of its own, with the policy manual. */
#ifndef HA_TESTS_TOOL_AGENT_PROCESS_H
#define HA_TESTS_TOOL_AGENT_PROCESS_H

#include "../unit/cmocka_all.h"
#include "../unit/eventually.h"

#include "tools/nccl-ha-agent/set.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char agent_dir[64];
static pid_t agent;

static inline bool make_agent_dir(void)
{
	snprintf(agent_dir, sizeof(agent_dir), "%s", "/tmp/ha-agent-XXXXXX");
	return mkdtemp(agent_dir) && chmod(agent_dir, 0755) == 0;
}

/* 0: it is gone. */
static inline int remove_agent_dir(void)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/agent.sock", agent_dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/hints", agent_dir);
	unlink(path);
	return rmdir(agent_dir);
}

static inline void start_agent(void)
{
	agent = fork();
	assert_true(agent >= 0);
	if (agent == 0) {
		execl(AGENT, AGENT, "--dir", agent_dir, "--policy", "manual", NULL);
		_exit(127);
	}
}

static inline void kill_agent(void)
{
	int status;

	if (agent <= 0)
		return;
	kill(agent, SIGKILL);
	waitpid(agent, &status, 0);
	agent = 0;
}

/* It is told, as soon as it is there. */
static inline void set_share(const char *src, const char *dst, uint32_t share)
{
	EVENTUALLY(na_set(agent_dir, inet_addr(src), inet_addr(dst), share) == 0);
}

#endif
