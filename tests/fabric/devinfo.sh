#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ibv_devinfo lists the devices of a host as a driver's: names, state, GIDs; link state follows.
. "$(dirname "$0")/lib.sh"

fabric_up --hosts 2 --rails 3
info() {
	timeout 20 "$SIMVERBS" run "$FABRIC" 1 -- ibv_devinfo -v >"$WORK/info.out" 2>&1 ||
		fail "ibv_devinfo: exit status $?"
}
expect() {
	grep -Eq "$1" "$WORK/info.out" || fail "ibv_devinfo does not say: $1"
}

info
for rail in 0 1 2; do
	expect "hca_id:.*sim$rail"
	expect "GID\[ *3\]:.*::ffff:10.$rail.0.2, RoCE v2"
done
[ "$(grep -c "state:.*PORT_ACTIVE" "$WORK/info.out")" = 3 ] || fail "three active ports"
expect "active_mtu:.*4096"
expect "link_layer:.*Ethernet"

"$SIMVERBS" link "$FABRIC" 1 2 down || fail "simverbs link"
info
[ "$(grep -c "state:.*PORT_ACTIVE" "$WORK/info.out")" = 2 ] || fail "two active ports after link down"
[ "$(grep -c "state:.*PORT_DOWN" "$WORK/info.out")" = 1 ] || fail "one port down"

# The tree says the same.
tree=$("$SIMVERBS" status "$FABRIC" --json | sed -n 's/.*"sysfs": "\(.*\)".*/\1/p')/1/sys
[ "$(cat "$tree/class/infiniband/sim2/ports/1/state")" = "1: DOWN" ] || fail "sysfs: sim2 is down"
[ "$(cat "$tree/class/infiniband/sim0/ports/1/state")" = "4: ACTIVE" ] || fail "sysfs: sim0 is up"
[ "$(cat "$tree/class/infiniband/sim0/device/numa_node")" = 0 ] || fail "sysfs: numa node"
[ "$(cat "$tree/class/infiniband/sim2/device/numa_node")" = 1 ] || fail "sysfs: numa node"
case $(realpath "$tree/class/infiniband/sim1/device") in
*/sys/devices/pci0000:*/0000:*) ;;
*) fail "sysfs: device is not below a PCI root" ;;
esac

# A fabric that is not there is an error that says so.
timeout 20 "$SIMVERBS" run "$FABRIC" 1 -- env SIMVERBS_FABRIC=nonesuch ibv_devinfo \
	>"$WORK/none.out" 2>&1
grep -q "fabric nonesuch: not up" "$WORK/none.out" || fail "no word about a fabric that is not up"
exit 0
