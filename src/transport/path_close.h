/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a path. */
#ifndef HA_TRANSPORT_PATH_CLOSE_H
#define HA_TRANSPORT_PATH_CLOSE_H

#include <stdbool.h>

struct ha_command;
struct ha_path;

/*
 * Frees everything. Destroying a queue pair may take the kernel a minute, while packets of it are
 * held up; a command does it, and this waits for ha_command_timeout_ns. What is not gone by then
 * is left to the command: queue pairs, completion queue, the ring's registration, the reference to
 * the PD, and through the reference to the connection the ring's memory itself. That is all that
 * such queue pairs can still write to or read. Memory of the application they do not touch any
 * more: a fence was confirmed, or none of its requests was under way (fence.c, close.c). Of an
 * `exposed` path neither is known, and there is no other way to keep the device off that memory
 * than to wait for as long as it takes, also where the device refuses to destroy a queue pair, with
 * a warning each minute. What cannot be destroyed of another path stays until the device is closed,
 * with all that it may touch. NULL is fine.
 */
void ha_path_close(struct ha_path *path);

/* Once more, in the background, for one that nobody else knows: it is freed, or kept. Takes it. */
void ha_path_free_in_background(struct ha_path *path);

/*
 * The same without waiting, for a path that is fenced and that nobody else knows any more. True:
 * ask again when its command is back, and not before destroy_ns where it was in vain. False: it is
 * freed. Under the token.
 */
bool ha_path_closing(struct ha_path *path);

/* Of a path that was left, when its command is through: frees it, or keeps it. It is the command's
 * `abandoned`: a thread of the commands. */
void ha_path_free_left(struct ha_command *command);

#endif
