#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pingpong.sh TOOL PROGRAM [OPTION...]: one of rdma-core's ping-pongs, by polling and by events.
. "$(dirname "$0")/lib.sh"
program=$1
shift

fabric_up --hosts 2 --rails 2
run() {
	server_client 60 "$program" -p PORT -g 3 "$@" -- "$program" -p PORT -g 3 "$@" localhost
	grep -q "iters in" "$WORK/client.out" || fail "no result"
	grep -h "iters in\|bytes in" "$WORK/client.out"
}
run "$@"
run -e "$@"
run -d sim1 "$@"
