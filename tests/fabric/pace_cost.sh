#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pace_cost.sh TOOL SOURCES: that links may have a rate costs those nothing whose links have none. Counted is what a thread
# does in ibv_post_send and with each packet, and not how often it looks in vain.
. "$(dirname "$0")/lib.sh"
program=(ib_write_bw -p PORT -d sim0 -x 3 -F -s 8 -n 1000)

for pace in "" --pace; do
	fabric_up --hosts 2 --rails 1 $pace
	server_client 60 "${program[@]}" -- valgrind --tool=callgrind --compress-pos=no --collect-atstart=no \
		--toggle-collect=sv_post_send --toggle-collect=sv_port_receive \
		--callgrind-out-file="$WORK/costs$pace" "${program[@]}" localhost
	"$SIMVERBS" down "$FABRIC"
done
python3 -B "$(dirname "$0")/pace_cost.py" "$1" "$WORK/costs" "$WORK/costs--pace" || fail "see above"
