/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands to the kernel and to a NIC's firmware, and threads that may wait with them.
 *
 * Making, changing and destroying queue pairs, registering memory and resolving addresses are calls
 * that a sick firmware or a neighbour that is not there may keep for seconds, or a minute. So they
 * are made by threads of their own, and these belong to one NIC: what one NIC keeps waiting keeps
 * nobody else waiting, neither another NIC nor the background thread, which has heartbeats to
 * answer. The threads are started when first needed.
 *
 * A command has a key, and no two of the same key run at once: what is done to one queue pair is
 * done in order, and an address that does not answer holds one thread however many connections ask
 * for it. Commands that resolve an address may take some of the threads and never all of them.
 *
 * The owner looks at the state; its poller is called when the command is done. An owner that ends
 * waits for its commands, but not for ever: what is not back by then is left to the threads, with
 * all that it uses, and frees that when it is done.
 *
 * What traffic waits for goes first: commands of a fence overtake all that wait, as a NIC does one
 * at a time, and making a queue pair takes it as long as five fences. So do they those of fences of
 * connections that have nothing under way.
 *
 * A command that a healthy NIC is through with in milliseconds, and that takes longer than
 * HA_COMMAND_SICK_NS, makes the NIC sick until it is back.
 */
#ifndef HA_PROGRESS_COMMAND_H
#define HA_PROGRESS_COMMAND_H

#include "base/clock.h"
#include "base/list.h"
#include "base/result.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_commands;
struct ha_poller;
struct ha_progress;

/* How long who ends waits for a command before he leaves it. A device that is well takes far less.
 * A variable for tests that count on it: on a busy machine a thread may not run for as long. */
#define HA_COMMAND_TIMEOUT_NS (200 * HA_NS_PER_MS)
extern uint64_t ha_command_timeout_ns;

/* A variable for tests as well. */
#define HA_COMMAND_SICK_NS HA_NS_PER_S
extern uint64_t ha_command_sick_ns;

/*
 * For a clock that is in a test's hands: how long what the calling thread has done since the last
 * time would have taken. Where there are no threads, a command is back so much later. NULL: no
 * time.
 */
extern uint64_t (*ha_command_took_ns)(void);

enum ha_command_state {
	HA_COMMAND_IDLE,    /* never sent, or called back before it ran */
	HA_COMMAND_WAITING, /* for a thread */
	HA_COMMAND_RUNNING,
	HA_COMMAND_DONE,
};

enum ha_command_kind {
	HA_COMMAND_DEVICE, /* milliseconds, on a healthy NIC */
	HA_COMMAND_FENCE,  /* likewise, and traffic waits for it: before all others */
	/* Likewise, and traffic will when there is some: before all but those. */
	HA_COMMAND_QUIET_FENCE,
	HA_COMMAND_RESOLVE, /* an address: seconds, where nobody answers */
	HA_COMMAND_CLEAN,   /* destroys what nobody uses: as long as it likes */
};

struct ha_command {
	struct ha_list link; /* under the lock of the commands, as the next one */
	bool left;	     /* nobody waits for it any more */
	uint8_t kind;	     /* enum ha_command_kind */
	atomic_int state;    /* enum ha_command_state */
	uint64_t key;
	struct ha_poller *owner; /* called when it is done; outlives the command */
	/* Without any lock. */
	void (*run)(struct ha_command *command);
	/* What it does next, as ha_command_go_on has said; NULL: it is done. */
	struct {
		void (*run)(struct ha_command *command);
		uint8_t kind;
		uint64_t key;
	} then;
	/* For a command that was left, when it has run: frees it and what it used. Without any
	 * lock. */
	void (*abandoned)(struct ha_command *command);
};

/* Whether some thread has it or will have it: the command's things are not the owner's now. */
static inline bool ha_command_busy(const struct ha_command *command)
{
	int state = atomic_load_explicit(&command->state, memory_order_acquire);

	return state == HA_COMMAND_WAITING || state == HA_COMMAND_RUNNING;
}

static inline bool ha_command_done(const struct ha_command *command)
{
	return atomic_load_explicit(&command->state, memory_order_acquire) == HA_COMMAND_DONE;
}

/* Any thread; never waits. run, kind, key and owner are set; it is not busy. Where there was no
 * memory for the commands (NULL, as for the functions below) it runs here. */
void ha_command_send(struct ha_commands *commands, struct ha_command *command);

/* From its `run`, as the last thing: it is sent once more, with this, before it goes back to its
 * owner, who is not asked. */
void ha_command_go_on(struct ha_command *command, void (*run)(struct ha_command *command),
		      enum ha_command_kind kind, uint64_t key);

/* Takes it back if no thread has it yet. Never waits. */
void ha_command_recall(struct ha_commands *commands, struct ha_command *command);

/*
 * Waits for it as long as it gets on: until the command of its key that runs, itself or one before
 * it, has taken limit_ns; of kind CLEAN, the one of that kind that has been running longest. So
 * where something is stuck for that long already it does not wait at all. UINT64_MAX: no limit.
 * True: it is not busy.
 */
bool ha_command_wait(struct ha_commands *commands, struct ha_command *command, uint64_t limit_ns);

/* Nobody waits for it any more: it is run in its turn if it was not, and freed. Never waits. */
void ha_command_leave(struct ha_commands *commands, struct ha_command *command);

/* Never waits. True: it is the caller's, and not busy. False: it runs, and frees itself. */
bool ha_command_disown(struct ha_commands *commands, struct ha_command *command) HA_MUST_CHECK;

/* Whether a command of kind DEVICE has been running for longer than a healthy NIC takes. *next_ns,
 * if not NULL: when that may change by time alone; UINT64_MAX: never. Any thread. */
bool ha_commands_stuck(struct ha_commands *commands, uint64_t now_ns, uint64_t *next_ns);

/* Without threads: runs what waits, here and now, and gives back what is due. Returns how many that
 * were. */
int ha_commands_round(struct ha_commands *commands);

/* threads: else the caller drives ha_commands_round. `progress` has the owners. NULL: no memory. */
struct ha_commands *ha_commands_new(struct ha_progress *progress, bool threads);
/*
 * The end, for commands that all were left or are back: frees them, and calls then(arg) when the
 * last one is through. Waits for that as long as they get on: when none has come back for
 * ha_command_timeout_ns, returns, and the last of the threads does it. True: it is done. NULL for
 * `commands` is fine.
 */
bool ha_commands_end(struct ha_commands *commands, void (*then)(void *arg), void *arg);

#endif
