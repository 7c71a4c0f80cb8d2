#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An adapter that migrates paths by itself is warned about, once per port, and only where there is failover.
. "$(dirname "$0")/lib.sh"
CHECK=$1 PLUGIN=$2

# warnings_with VARIABLE=VALUE...: how many there are, of which ports.
warnings_with() {
	"$SIMVERBS" run "$FABRIC" 0 -- env "$@" NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME=lo \
		"$CHECK" --plugin "$PLUGIN" --api newest --rule init >"$WORK/check.out" 2>&1 || fail "nccl-net-check"
	grep -q '1 passed, 0 failed' "$WORK/check.out" || fail "nccl-net-check"
	grep -o 'NET/HA : sim.*migrates paths by itself' "$WORK/check.out" | cut -d' ' -f3 | sort -u | tr -d '\n'
}

fabric_up --hosts 1 --rails 2
sysfs=$("$SIMVERBS" run "$FABRIC" 0 -- printenv SYSFS_PATH) || fail "SYSFS_PATH"
[ -d "$sysfs/class/infiniband/sim1/ports/1" ] || fail "no sysfs in $sysfs"

[ -z "$(warnings_with A=1)" ] || fail "warned of nothing"
echo 1 >"$sysfs/class/infiniband/sim1/ports/1/apm_enable"
echo 0 >"$sysfs/class/infiniband/sim0/ports/1/apm_enable"
[ "$(warnings_with A=1)" = sim1:1: ] || fail "did not warn of sim1, or of more"
grep -q "echo 0 > .*sim1/ports/1/apm_enable" "$WORK/check.out" || fail "does not say what to do"
[ -z "$(warnings_with HA_NCCL_ENABLE_BACKUP=0)" ] || fail "warned though there is no failover"
echo 0 >"$sysfs/class/infiniband/sim1/ports/1/apm_enable"
[ -z "$(warnings_with A=1)" ] || fail "warned though it is off"
