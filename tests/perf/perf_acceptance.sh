#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The whole matrix: every operation, 2 and 4 ranks, sizes 0 and 1 B to 64 MB with odd ones among
# them, every API version, 1 and 4 QPs per connection, with and without the progress thread; then
# all sizes up to 1 MB over fabrics that lose, duplicate, delay and reorder 1 % of the packets.
# A line per run, and what failed in full. About ten minutes on two cores.
#
# usage: perf_acceptance.sh [FOLDER OF nccl-net-perf]
set -uo pipefail

perf=${1:-build/bin}/nccl-net-perf
[ -x "$perf" ] || { echo "perf_acceptance: no $perf: build first, or name its folder" >&2; exit 2; }

sizes=0,1,2,3,7,8,63,64,1001,4095,4097,65535,65537,1000003,16777215,64M
small=0,1,3,8,1001,4095,4097,65537,1000003
runs=0
failed=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# one DESCRIPTION [VARIABLE=VALUE ...] -- ARGUMENT...
one() {
	local name=$1 status begun=$SECONDS
	local -a environment=()
	shift
	while [ "$1" != -- ]; do
		environment+=("$1")
		shift
	done
	shift
	runs=$((runs + 1))
	env "${environment[@]}" "$perf" --simverbs 2x2 --timeout 60 --op all -n 1 -w 1 -c 2 -C 2 "$@" \
		>"$output" 2>&1
	status=$?
	printf '%-60s %s %3d s  %s\n' "$name" "$([ $status = 0 ] && echo ok || echo FAILED)" \
		$((SECONDS - begun)) "$(grep '^# wrong' "$output")"
	if [ $status != 0 ]; then
		failed=$((failed + 1))
		echo "exit status $status of: ${environment[*]} nccl-net-perf $*"
		cat "$output"
	fi
}

for api in v8 v9 v10 v11 v12; do
	for ranks in 2 4; do
		for qps in 1 4; do
			for thread in 1 0; do
				one "$api, $ranks ranks, $qps QPs, progress thread $thread" \
					NCCL_IB_QPS_PER_CONNECTION=$qps HA_NCCL_USE_PROGRESS_THREAD=$thread -- \
					--api $api --ranks $ranks --sizes $sizes
			done
		done
		for fault in drop dup delay=1ms reorder; do
			for qps in 1 4; do
				one "$api, $ranks ranks, $qps QPs, $fault 1 %" \
					NCCL_IB_QPS_PER_CONNECTION=$qps -- \
					--api $api --ranks $ranks --sizes $small --fault "$fault prob=0.01"
			done
		done
	done
done
echo "$((runs - failed)) of $runs runs right"
[ $failed = 0 ]
