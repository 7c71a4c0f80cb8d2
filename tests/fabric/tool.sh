#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The simverbs command: what it refuses and how it says so, fault rules, cuts of one direction,
# timed rules, environment of programs.
. "$(dirname "$0")/lib.sh"

refuses() { # STATUS PATTERN COMMAND...
	local status=$1 pattern=$2 rc
	shift 2
	"$SIMVERBS" "$@" >"$WORK/refused.out" 2>&1
	rc=$?
	[ $rc = "$status" ] || fail "simverbs $*: exit status $rc, not $status"
	grep -q -- "$pattern" "$WORK/refused.out" || fail "simverbs $*: does not say '$pattern'"
}
has() { # PATTERN: the JSON status has such a line
	"$SIMVERBS" status "$FABRIC" --json >"$WORK/status.out" || fail "simverbs status"
	grep -q -- "$1" "$WORK/status.out" || fail "status does not have $1"
}

refuses 2 "no command" frobnicate
refuses 2 "Usage" up
refuses 1 "no such fabric" status nonesuch
refuses 1 "not a name" up ../escape
refuses 2 "--mtu must be" up x --mtu 1000
refuses 1 "at least 1 host" up "$FABRIC" --hosts 0
refuses 2 "--limit must be NAME=N" up x --limit max_qp
refuses 2 "no 'max_qps'" up x --limit max_qp=9,max_qps=9
refuses 2 "at least 1" up x --limit max_cq=0
refuses 2 "--profile: there is no profile 'mlx9'" up x --profile mlx9
SIMVERBS_GPU=yes refuses 2 "SIMVERBS_GPU=yes: 1 or 0" up x
SIMVERBS_PROFILE=fast refuses 2 "SIMVERBS_PROFILE: there is no profile 'fast'" up x

refuses 2 "--rate must be from 0.001 to 1600 Gb/s, not '0'" up x --rate 0
refuses 2 "--rate must be from 0.001 to 1600 Gb/s, not '1g'" up x --rate 1g
refuses 2 "--rail-rate must be from 0.001 to 1600 Gb/s, not '1601'" up x --rail-rate 10,1601
refuses 2 "--rail-rate must be from 0.001 to 1600 Gb/s, not ''" up x --rail-rate 10,
refuses 2 "one for each of the 2, not '1,2,3'" up x --rail-rate 1,2,3
refuses 2 "one for each of the 3, not '1,2'" up x --rails 3 --rail-rate 1,2
refuses 2 "--rail-latency must be a time up to 1s, such as 2us, not '2'" up x --pace --rail-latency 2
refuses 2 "--rail-latency must be a time up to 1s" up x --pace --rail-latency 2us,1.1s
refuses 2 "--rail-latency needs --pace" up x --rail-latency 2us
refuses 2 "--aggregators must be a number" up x --aggregators 99
refuses 1 "aggregators included" up x --hosts 63 --rails 1 --aggregators 2
refuses 2 "--islands are about the second rail" up x --rails 1 --islands 0,1
refuses 2 "--islands must be ranges of hosts below 4" up x --hosts 4 --islands 0-3,3
refuses 2 "--islands must be ranges of hosts below 4" up x --hosts 4 --islands 0-4

refuses 2 "--ports must be" up x --ports 3
refuses 2 "need --link-layer ib" up x --subnets 2
refuses 2 "need --link-layer ib" up x --grh-required
refuses 2 "--pkeys must be tables" up x --link-layer ib --pkeys 0xffff,
refuses 2 "--pkeys must be tables" up x --link-layer ib --pkeys 0x10000
refuses 2 "--ports must be at least 1" up x --ports 0

fabric_up --hosts 2 --rails 2
refuses 2 "have ports 1 to 1, not 2" link "$FABRIC" 0 0.2 down
refuses 2 "PORT counts from 1" link "$FABRIC" 0 0.0 down
refuses 1 "up already" up "$FABRIC"
refuses 2 "hosts 0 to 1" link "$FABRIC" 2 0 down
refuses 2 "up or down\|down or up" link "$FABRIC" 0 0 sideways
refuses 2 "HOST must be a number" run "$FABRIC" x -- true
refuses 2 "down, remap or up" leg "$FABRIC" 0 0 1 away
refuses 2 "LEG must be a number" leg "$FABRIC" 0 0 2 down
refuses 2 "hosts 0 to 1" leg "$FABRIC" 2 0 0 down
refuses 2 "bond= needs leg" fault "$FABRIC" "bond=down host=0 rail=0 at=1s"
refuses 127 "No such file" run "$FABRIC" 0 -- /nonesuch
refuses 2 "frob" fault "$FABRIC" "frob host=0"
refuses 1 "no rule 7" fault "$FABRIC" --clear=7

# Rules: added, listed, removed; the same text by hand is another rule.
[ "$("$SIMVERBS" fault "$FABRIC" 'drop op=write nth=3')" = 0 ] || fail "first rule is 0"
[ "$("$SIMVERBS" fault "$FABRIC" 'delay=1ms prob=0.5')" = 1 ] || fail "second rule is 1"
"$SIMVERBS" fault "$FABRIC" --list | grep -q "fired 0 *drop op=write nth=3" || fail "rule 0 is listed"
"$SIMVERBS" fault "$FABRIC" --clear=0 || fail "clear 0"
"$SIMVERBS" fault "$FABRIC" --list | grep -q "drop" && fail "rule 0 is gone"
"$SIMVERBS" fault "$FABRIC" --clear || fail "clear all"
[ -z "$("$SIMVERBS" fault "$FABRIC" --list)" ] || fail "no rules are left"

# Cuts: one host, one direction.
"$SIMVERBS" cut "$FABRIC" 1 --host 0 --direction from || fail "cut"
has '"cut": "from"'
"$SIMVERBS" cut "$FABRIC" 1 --heal || fail "heal"
"$SIMVERBS" status "$FABRIC" --json | grep -q '"cut": "from"' && fail "healed"

# A flap in 0.2 s for 2 s, while a program has the device open: long enough to be seen on a loaded
# machine, where each look takes its time.
"$SIMVERBS" run "$FABRIC" 0 -- ib_write_bw -d sim0 -x 3 -p "$(free_port)" >/dev/null 2>&1 &
PIDS+=($!)
for _ in $(seq 200); do
	"$SIMVERBS" status "$FABRIC" --json | grep -q '"pid"' && break
	sleep 0.05
done
has '"pid"'
"$SIMVERBS" fault "$FABRIC" 'link=down host=0 rail=0 at=200ms for=2s' >/dev/null || fail "flap"
seen=
for _ in $(seq 200); do
	state=$("$SIMVERBS" status "$FABRIC" --json | grep -c '"link": "down"')
	[ "$state" = 1 ] && seen=down
	[ "$seen" = down ] && [ "$state" = 0 ] && seen=up && break
	sleep 0.05
done
[ "$seen" = up ] || fail "the link went '$seen', not down and up again"

# Programs bring rules along; several with the same text add them once.
for host in 0 1; do
	SIMVERBS_FAULTS='drop op=send nth=1000' timeout 20 \
		"$SIMVERBS" run "$FABRIC" $host -- ibv_devinfo >/dev/null 2>"$WORK/env.out" || fail "devinfo"
done
[ "$("$SIMVERBS" fault "$FABRIC" --list | grep -c 'drop op=send nth=1000')" = 1 ] ||
	fail "one rule from the environment"

"$SIMVERBS" down "$FABRIC" || fail "down"

# Devices with less of something say so.
"$SIMVERBS" up "$FABRIC" --limit max_qp=77,max_cq=66 --limit max_cqe=555 || fail "up with limits"
"$SIMVERBS" run "$FABRIC" 0 -- ibv_devinfo -v >"$WORK/devinfo.out" || fail "devinfo with limits"
for limit in max_qp:77 max_cq:66 max_cqe:555 max_mr:65536; do
	tr -d '\t' <"$WORK/devinfo.out" | grep -qx "$limit" || fail "a device with limits does not say $limit"
done
"$SIMVERBS" down "$FABRIC" || fail "down"

# Rates by rail: in the tree, in the text and in the JSON; the counters of ports are there, unused.
"$SIMVERBS" up "$FABRIC" --hosts 1 --rail-rate 10,3.3 --rail-latency 2us --pace || fail "up with rates"
tree=$("$SIMVERBS" status "$FABRIC" --json | sed -n 's/.*"sysfs": "\(.*\)".*/\1/p')/0/sys/class/infiniband
[ "$(cat "$tree/sim0/ports/1/rate" "$tree/sim1/ports/1/rate")" = "10 Gb/sec (4X)
3.3 Gb/sec (4X)" ] || fail "the tree does not show the rates"
"$SIMVERBS" status "$FABRIC" | grep -q "10 Gb/s paced" || fail "status does not say that links are paced"
has '"rate_mbps": 3300'
has '"latency_ns": 2000'
has '"work_requests": 0'
has '"links"'
"$SIMVERBS" down "$FABRIC" || fail "down"

# P_Key tables differ from port to port.
"$SIMVERBS" up "$FABRIC" --hosts 1 --rails 2 --link-layer ib --pkeys 0xffff,0x8001/0x8001,0xffff ||
	fail "up with P_Keys"
tree=$("$SIMVERBS" status "$FABRIC" --json | sed -n 's/.*"sysfs": "\(.*\)".*/\1/p')/0/sys/class/infiniband
[ "$(cat "$tree/sim0/ports/1/pkeys/1" "$tree/sim1/ports/1/pkeys/0")" = "0x8001
0x8001" ] || fail "the tree does not show the P_Keys"
has '"pkeys"'
"$SIMVERBS" down "$FABRIC" || fail "down"

# A device with two ports: each is in the tree and in the status, with a link of its own.
"$SIMVERBS" up "$FABRIC" --hosts 1 --rails 1 --ports 2 || fail "up with two ports"
"$SIMVERBS" link "$FABRIC" 0 0.2 down || fail "link of a port"
tree=$("$SIMVERBS" status "$FABRIC" --json | sed -n 's/.*"sysfs": "\(.*\)".*/\1/p')/0/sys/class/infiniband/sim0/ports
[ "$(cat "$tree/1/state" "$tree/2/state")" = "4: ACTIVE
1: DOWN" ] || fail "the tree does not show the ports' links"
"$SIMVERBS" status "$FABRIC" | grep -q "^ *\.2 *down *none" || fail "status does not show port 2"
has '"port": 2'
"$SIMVERBS" down "$FABRIC" || fail "down"
refuses 1 "no such fabric" down "$FABRIC"
