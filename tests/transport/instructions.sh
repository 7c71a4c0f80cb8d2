#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Instructions per message in the plugin (verbs and libc not counted), measured by callgrind, so
# that they don't depend on the machine's speed or load. Fails when a message costs more than it
# does in NCCL's own IB transport (2.30.7, counted in the same way).
#
#	instructions.sh PROGRAM

set -euo pipefail
program=$1
command -v valgrind >/dev/null || { echo "valgrind is missing (package valgrind)"; exit 1; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# count N FUNCTION [e2e]: instructions of our sources below counted_FUNCTION, per message
count() {
	valgrind --tool=callgrind --callgrind-out-file="$out" --collect-atstart=no \
		--toggle-collect="counted_$2" "$program" "$1" "${3-}" >/dev/null 2>&1
	callgrind_annotate --auto=no --threshold=100 "$out" |
		awk -v n="$1" '/^ *[0-9,]+ *\(/ && /src\/(transport|memory)|infiniband.verbs.h/ {
			v = $1; gsub(",", "", v); sum += v }
			END { printf "%d\n", sum / 1000 / n + 0.5 }'
}

failed=0
# check N NCCL_SEND NCCL_RECV
check() {
	local isend test_send irecv test_recv ours theirs=$(($2 + $3))
	isend=$(count "$1" isend) test_send=$(count "$1" test_send)
	irecv=$(count "$1" irecv) test_recv=$(count "$1" test_recv)
	ours=$((isend + test_send + irecv + test_recv))
	echo "groups of $1: send $((isend + test_send)) (isend $isend, test $test_send; NCCL IB $2)," \
		"receive $((irecv + test_recv)) (irecv $irecv, test $test_recv; NCCL IB $3)," \
		"together $ours of $theirs"
	if [ "$ours" -eq 0 ] || [ "$ours" -gt "$theirs" ]; then
		failed=1
	fi
}

check 1 651 568
check 8 478 94
# Not checked: nobody else has it.
echo "end to end, groups of 1: send $(($(count 1 isend e2e) + $(count 1 test_send e2e)))," \
	"receive $(($(count 1 irecv e2e) + $(count 1 test_recv e2e)))"
exit $failed
