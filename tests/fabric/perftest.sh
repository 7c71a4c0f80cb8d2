#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perftest.sh TOOL PROGRAM OPTION...: one of perftest's programs, over RoCE v2, between two hosts.
. "$(dirname "$0")/lib.sh"
program=$1
shift

fabric_up --hosts 2 --rails 1
server_client 100 "$program" -p PORT -d sim0 -x 3 -F "$@" -- \
	"$program" -p PORT -d sim0 -x 3 -F "$@" localhost
# A table with a line per size, first column the number of bytes.
grep -Eq '^ *[0-9]+ +[0-9]+ +[0-9.]+' "$WORK/client.out" || fail "no result line"
grep -E '^ *#bytes|^ *[0-9]+ +[0-9]+ +[0-9.]+' "$WORK/client.out"
[ "$(counter tx_packets)" -gt 0 ] || fail "nothing went over the fabric"
