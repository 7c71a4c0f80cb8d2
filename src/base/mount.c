/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mount.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* The number of the mount that it is on; 0: not to be had. */
static int mount_of(int held)
{
	char line[256];
	int mount = 0;
	FILE *info;

	snprintf(line, sizeof(line), "/proc/self/fdinfo/%d", held);
	info = fopen(line, "re");
	while (info && mount == 0 && fgets(line, sizeof(line), info))
		(void)sscanf(line, "mnt_id: %d", &mount);
	if (info)
		fclose(info);
	return mount;
}

/* "36 35 98:0 / /mnt rw - fuse.sshfs a:/b rw,user_id=1000,…": of the fields behind the dash the
 * last alone is the kernel's own word. */
static bool is_served_by_another(const char *line)
{
	const char *type = strstr(line, " - "), *source, *options, *user;
	uid_t uid;

	if (!type)
		return true;
	type += 3;
	if (strncmp(type, "fuse", 4) != 0 || !strncmp(type, "fusectl ", 8))
		return false;
	source = strchr(type, ' ');
	options = source ? strchr(source + 1, ' ') : NULL;
	user = options ? strstr(options, ",user_id=") : NULL;
	if (!user)
		return true;
	uid = (uid_t)strtoul(user + strlen(",user_id="), NULL, 10);
	return uid != 0 && uid != getuid();
}

bool ha_mount_is_anothers(int held, int *mount)
{
	int number = mount_of(held), listed;
	FILE *mounts = NULL;
	char *line = NULL;
	size_t size = 0;
	bool is_anothers = true;

	if (number != 0 && number == *mount)
		return false;
	if (number != 0)
		mounts = fopen("/proc/self/mountinfo", "re");
	while (mounts && getline(&line, &size, mounts) > 0) {
		if (sscanf(line, "%d", &listed) != 1 || listed != number)
			continue;
		is_anothers = is_served_by_another(line);
		break;
	}
	if (mounts)
		fclose(mounts);
	free(line);
	if (!is_anothers)
		*mount = number;
	return is_anothers;
}
