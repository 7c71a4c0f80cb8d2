/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which build this is: the release, such as "0.1.0", and after it what git says of a tree that is
 * not exactly that release: "0.1.0+g0123456789ab", "0.1.0+12.g0123456789ab.dirty". A tree without
 * git is taken for the release. HA_VERSION is the release alone, for what must not change with
 * each commit.
 */
#ifndef HA_BASE_VERSION_H
#define HA_BASE_VERSION_H

/* Never NULL. `strings` finds it in every file it is in: "nccl-ha VERSION". */
extern const char *const ha_version;

#endif
