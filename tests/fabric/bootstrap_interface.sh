#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bootstrap sockets keep off the interfaces of the devices that data goes over: the kernel's interfaces, in a namespace.
. "$(dirname "$0")/lib.sh"
CHECK=$1 PLUGIN=$2

# Interfaces in the kernel's order: eth0, of the device sim0; pods, a bridge that leads nowhere; mgmt0, with the default route.
interfaces() {
	mount -t sysfs none /sys
	ip link set lo up
	ip link add eth0 type veth peer name peer0
	ip link add pods type bridge
	ip link add mgmt0 type veth peer name peer1
	ip address add 10.77.1.1/24 dev eth0
	ip address add 10.77.2.1/24 dev pods
	ip address add 10.77.3.1/24 dev mgmt0
	for name in eth0 peer0 pods mgmt0 peer1; do ip link set "$name" up; done
	ip route add default via 10.77.3.2 dev mgmt0
}

# chosen VARIABLE=VALUE...: the line that says so.
chosen() {
	"$SIMVERBS" run "$FABRIC" 0 -- env "$@" NCCL_DEBUG=INFO \
		"$CHECK" --plugin "$PLUGIN" --api newest --rule init >"$WORK/check.out" 2>&1 || fail "nccl-net-check"
	grep -q '1 passed, 0 failed' "$WORK/check.out" || fail "nccl-net-check"
	grep -o 'connection set-up over .*' "$WORK/check.out" | sort -u
}

expect() { # LINE VARIABLE=VALUE...
	local said
	said=$(chosen "${@:2}")
	[ "$said" = "connection set-up over $1" ] || fail "with ${*:2}: '$said', not '$1'"
}

if [ "${3:-}" != inside ]; then
	user=()
	[ "$(id -u)" -eq 0 ] || user=(-r)
	unshare "${user[@]}" -nm -- "$0" "$SIMVERBS" "$CHECK" "$PLUGIN" inside
	exit
fi

interfaces || fail "the namespace cannot have the interfaces of this test: it needs veth and bridge of the kernel"
fabric_up --hosts 1 --rails 1
sysfs=$("$SIMVERBS" run "$FABRIC" 0 -- printenv SYSFS_PATH) || fail "SYSFS_PATH"
[ "$(cat "$sysfs/class/infiniband/sim0/ports/1/gid_attrs/ndevs/0")" = eth0 ] || fail "sim0 has no interface eth0"
ln -s /sys/class/net "$sysfs/class/net" || fail "no link in $sysfs"

expect "mgmt0, 10.77.3.1:0" A=1
expect "eth0, 10.77.1.1:0, which goes over a NIC of the fabric and fails with it" NCCL_SOCKET_IFNAME=eth
expect "pods, 10.77.2.1:0" NCCL_SOCKET_IFNAME="^eth0,lo,mgmt"

# Nothing else leads out of here: as NCCL would have it.
ip link set mgmt0 down
expect "eth0, 10.77.1.1:0, which goes over a NIC of the fabric and fails with it" A=1

# Nor does a bridge that stands on the device's interface, whatever its address.
ip link set eth0 master pods
ip address flush dev eth0
ip link set mgmt0 up
ip route replace default via 10.77.2.2 dev pods
expect "pods, 10.77.2.1:0, which goes over a NIC of the fabric and fails with it" A=1
