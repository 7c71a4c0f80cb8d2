#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# simverbs run --sysfs: the fabric's devices are below /sys, for the program alone; what was there
# stays; it needs no privileges, and says what it lacks.
. "$(dirname "$0")/lib.sh"

unshare -m true 2>/dev/null || unshare -Um true 2>/dev/null || {
	echo "SKIP: no mount namespaces for this user on this machine"
	exit 77
}

# No shell in between: gcc 12's thread sanitizer cannot be loaded into one (its setjmp is none).
shows() { # WHAT COMMAND...: prints it with --sysfs
	local what=$1 said
	shift
	said=$("$SIMVERBS" run --sysfs "$FABRIC" 1 -- "$@" 2>&1)
	[ "$said" = "$what" ] || fail "with --sysfs '$*' says '$said', not '$what'"
}

look() { # COUNTER: how payload gets from one to the other
	fabric_up --hosts 2 --rails 2
	shows "RoCE v2" cat /sys/class/infiniband/sim1/ports/1/gid_attrs/types/3
	shows "0000:0000:0000:0000:0000:ffff:0a00:0002" cat /sys/class/infiniband/sim0/ports/1/gids/2
	shows /sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0 readlink -f /sys/class/infiniband/sim1/device
	shows "$(cat /sys/devices/system/cpu/online)" cat /sys/devices/system/cpu/online
	shows "$(readlink -f /sys/class/net/lo)" readlink -f /sys/class/net/lo
	shows "$(id -u):$(id -g)" stat -c %u:%g /proc/self/
	# A link that changes does so there, too.
	"$SIMVERBS" link "$FABRIC" 1 0 down || fail "link"
	shows "1: DOWN" cat /sys/class/infiniband/sim0/ports/1/state
	"$SIMVERBS" link "$FABRIC" 1 0 up || fail "link"
	[ ! -e /sys/class/infiniband/sim0 ] || [ -n "${HAD_SIM0:-}" ] || fail "everybody sees the devices"

	server_client 60 "$SIMVERBS" run --sysfs "$FABRIC" 0 ibv_rc_pingpong -d sim0 -g 3 -c -p PORT -s 65536 -n 50 \
		-- "$SIMVERBS" run --sysfs "$FABRIC" 1 ibv_rc_pingpong -d sim0 -g 3 -c -p PORT -s 65536 -n 50 localhost
	[ "$(counter "$1")" -ge $((50 * 65536)) ] || fail "not as $1"
	"$SIMVERBS" down "$FABRIC"
}

[ -e /sys/class/infiniband/sim0 ] && HAD_SIM0=1
if [ "$(id -u)" = 0 ]; then
	look copy_direct_bytes
else
	look copy_shared_bytes
fi
# As somebody without privileges, who needs a user namespace for it: the kernel lets nobody in another
# one read his memory.
export -f look shows fail fabric_up server_client free_port wait_listening counter
if [ "$(id -u)" = 0 ]; then
	export SIMVERBS FABRIC=$FABRIC-user WORK HAD_SIM0
	unshare --user --map-user=1000 --map-group=1000 bash -c '
		PIDS=()
		trap "\"$SIMVERBS\" down $FABRIC 2>/dev/null" EXIT
		look copy_shared_bytes' ||
		fail "without privileges"
	# In a root that is a folder and no mount point, as where a distribution is tried.
	mkdir "$WORK/root"
	unshare -m bash -c '
		for folder in /*; do
			[ -d "$folder" ] && [ "$folder" != /lost+found ] || continue
			mkdir "$WORK/root$folder" && mount --rbind "$folder" "$WORK/root$folder" || exit
		done
		chroot "$WORK/root" "$SIMVERBS" up "$FABRIC" --hosts 1 --rails 2 || exit
		chroot "$WORK/root" "$SIMVERBS" run --sysfs "$FABRIC" 0 -- cat /sys/class/infiniband/sim1/ports/1/gid_attrs/types/3
		echo "exit status $?"
		[ ! -e /sys/class/infiniband/sim1 ] || [ -n "${HAD_SIM0:-}" ] || echo "others see it"
		chroot "$WORK/root" "$SIMVERBS" down "$FABRIC"' >"$WORK/chroot.out" 2>&1
	[ "$(cat "$WORK/chroot.out")" = "RoCE v2
exit status 0" ] || fail "in a root of its own: $(cat "$WORK/chroot.out")"
	# Somebody whom the namespace around him does not know may have none.
	unshare --user sh -c '"$SIMVERBS" up "$FABRIC" && "$SIMVERBS" run --sysfs "$FABRIC" 0 -- true
		echo "exit status $?"
		"$SIMVERBS" down "$FABRIC"' >"$WORK/refused.out" 2>&1
	grep -q "cannot have user and mount namespaces: Operation not permitted" "$WORK/refused.out" &&
		grep -qx "exit status 1" "$WORK/refused.out" || fail "a refusal is not said"
fi
exit 0
