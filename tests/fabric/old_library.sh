#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# old_library.sh SIMVERBS OLD-DIR NEW-DIR PERF PLUGIN: on a libibverbs that has nothing newer than IBVERBS_1.1 the
# plugin is loaded, says once what it does without, and carries traffic.
. "$(dirname "$0")/lib.sh"
OLD=$1 NEW=$2 PERF=$3 PLUGIN=$4

names=$(readelf --dyn-syms -W "$OLD/libibverbs.so.1" | grep -oE '@@?IBVERBS_1\.[0-9]+' | sort -u | tr -d '@' | tr '\n' ' ')
[ "$names" = "IBVERBS_1.0 IBVERBS_1.1 " ] || fail "the old library has $names"

fabric_up --hosts 2 --rails 2

# run_on LIBRARY-DIR: two ranks, every byte checked; the log in $WORK/perf.out
run_on() {
	SIMVERBS_LIB=$1 "$SIMVERBS" run "$FABRIC" 0 -- env NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=lo HA_NCCL_STATS=0 \
		"$PERF" --plugin "$PLUGIN" --ranks 2 --sizes 8,64K,1M -n 5 -c 3 >"$WORK/perf.out" 2>&1
}

run_on "$OLD" || fail "nccl-net-perf on an old library"
lines=$(grep -c 'this libibverbs lacks .*ibv_reg_dmabuf_mr' "$WORK/perf.out")
[ "$lines" -ge 1 ] || fail "nothing is said of what is missing"
grep -q 'lacks ibv_reg_mr_iova2, ibv_reg_dmabuf_mr, _ibv_query_gid_table, ibv_query_ece, ibv_set_ece' "$WORK/perf.out" ||
	fail "not all that is missing is named"
run_on "$NEW" || fail "nccl-net-perf on a new library"
grep -q 'this libibverbs lacks' "$WORK/perf.out" && fail "something is said to be missing of a new library"
exit 0
