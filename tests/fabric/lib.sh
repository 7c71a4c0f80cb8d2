# SPDX-License-Identifier: Apache-2.0
# For tests that run unmodified programs on two hosts of a live fabric. Sourced with the simverbs
# tool as $1. Everything it starts or makes is gone when the test ends, however it ends.
set -u
SIMVERBS=$1
shift
FABRIC=prog-$$
WORK=$(mktemp -d)
PIDS=()

cleanup() {
	local pid
	for pid in "${PIDS[@]}"; do
		# What timeout has started is in a group of its own, and would outlive it.
		kill -9 -- "-$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	"$SIMVERBS" down "$FABRIC" 2>/dev/null
	rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

fail() {
	echo "FAILED: $*" >&2
	local f
	for f in "$WORK"/*.out; do
		[ -s "$f" ] && sed "s/^/$(basename "$f"): /" "$f" >&2
	done
	exit 1
}

fabric_up() {
	"$SIMVERBS" up "$FABRIC" "$@" || fail "simverbs up"
}

# A TCP port that nobody has, below those that connections get; programs here cannot be told to take any.
free_port() {
	local port
	while :; do
		port=$((RANDOM % 12000 + 20000))
		grep -qi ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 2>/dev/null || break
	done
	echo $port
}

# Waits until someone listens on a port: the programs' clients try once.
wait_listening() {
	local port=$1 pid=$2 hex
	hex=$(printf %04X "$port")
	for _ in $(seq 400); do
		awk -v p=":$hex\$" '$4 == "0A" && toupper($2) ~ p { found = 1 } END { exit !found }' \
			/proc/net/tcp /proc/net/tcp6 2>/dev/null && return 0
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.025
	done
	return 1
}

# server_client SECONDS SERVER-COMMAND... -- CLIENT-COMMAND...
# PORT in either command becomes the port. The server runs on host 0, the client on host 1.
server_client() {
	local seconds=$1 server=() port try
	shift
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	for try in 1 2 3; do
		port=$(free_port)
		timeout -s KILL "$seconds" "$SIMVERBS" run "$FABRIC" 0 -- "${server[@]//PORT/$port}" \
			>"$WORK/server.out" 2>&1 &
		SERVER=$!
		PIDS+=("$SERVER")
		wait_listening "$port" "$SERVER" && break
		# Somebody took the port first: another one. Anything else fails three times.
		kill "$SERVER" 2>/dev/null && wait "$SERVER" # timeout hands this one on
		[ "$try" = 3 ] && fail "the server does not listen"
	done
	timeout -s KILL "$seconds" "$SIMVERBS" run "$FABRIC" 1 -- "${@//PORT/$port}" \
		>"$WORK/client.out" 2>&1 || fail "client: exit status $?"
	wait "$SERVER" || fail "server: exit status $?"
}

# A number out of the JSON status, by a python-free path: counter NAME summed over devices.
counter() {
	"$SIMVERBS" status "$FABRIC" --json | awk -v name="\"$1\":" '
		/"processes":/ { exit }
		$1 == name { sum += $2 }
		END { printf "%d\n", sum }'
}
