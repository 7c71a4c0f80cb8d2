/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose file system something lies on. One that a user serves himself (FUSE) may never answer, and
 * then whoever asks it anything waits for as long as that user likes.
 */
#ifndef HA_BASE_MOUNT_H
#define HA_BASE_MOUNT_H

#include <stdbool.h>

/*
 * Whether what is held, a descriptor by O_PATH of something in this process's mount namespace, lies
 * on a file system that a user other than root and this process's own serves; true also where that
 * cannot be told (no /proc, a mount that is not in the namespace any more). The kernel is asked,
 * and never that file system. *mount is the number of the mount that the last call found to be
 * nobody's, which is not looked up again; 0 at first. Any thread.
 */
bool ha_mount_is_anothers(int held, int *mount);

#endif
