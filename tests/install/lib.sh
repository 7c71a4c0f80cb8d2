# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# For tests of what is installed. Sourced with the build folder as $1 and the source tree as $2.
# Whatever a test makes lies in $WORK, and the machine stays as it is.
set -uo pipefail
BUILD=$1 SOURCE=$2
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
trap 'exit 1' INT TERM HUP

# Traffic stays on the loopback interface.
export NCCL_SOCKET_IFNAME=lo
unset LD_LIBRARY_PATH NCCL_NET_PLUGIN NCCL_NET

fail() {
	echo "FAILED: $*" >&2
	exit 1
}
skip() {
	echo "SKIP: $*"
	exit 77
}
need() { # PROGRAM PACKAGE
	command -v "$1" >/dev/null || skip "$1 is not installed (package $2)"
}

# The distribution's Python, and whether it has what makes wheels and tries them.
packager_python() { if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi; }
can_make_wheels() { "$(packager_python)" -I -c 'import build.__main__, ensurepip, setuptools, wheel' 2>/dev/null; }
make_wheel() { # BUILD OUT: by the tree that was built there
	local tree
	tree=$(sed -n 's/^CMAKE_HOME_DIRECTORY:[A-Z]*=//p' "$1/CMakeCache.txt")
	"$(packager_python)" "$tree/scripts/packaging/wheel/make.py" "$1" "$2" >"$WORK/log" 2>&1 ||
		fail "make.py: $(tail -n 20 "$WORK/log")"
}

# As root, or as nobody special who is root of a name space of his own.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else unshare -r "$@"; fi
}

files_below() { (cd "$1" && find . ! -type d | sed 's|^\./||' | sort); }

# expect_files ROOT FILE...: exactly these, as patterns of the shell.
expect_files() {
	local root=$1 file pattern found=()
	shift
	mapfile -t found < <(files_below "$root")
	for pattern; do
		for file in "${found[@]}"; do
			# shellcheck disable=SC2053
			[[ $file == $pattern ]] && continue 2
		done
		fail "$pattern is missing; there are: ${found[*]}"
	done
	for file in "${found[@]}"; do
		for pattern; do
			# shellcheck disable=SC2053
			[[ $file == $pattern ]] && continue 2
		done
		fail "$file was not expected"
	done
}

# Nothing says where it was built, and no library is looked for in a fixed folder.
expect_no_paths() {
	local root=$1 file
	while read -r file; do
		case $file in
		*.gz) gzip -dc "$root/$file" >"$WORK/text" ;;
		*) cp "$root/$file" "$WORK/text" ;;
		esac
		! grep -qaF -e "$SOURCE" -e "$BUILD" "$WORK/text" || fail "$file has a path of the build in it"
		! readelf -d "$WORK/text" 2>/dev/null | grep -E 'R(UN)?PATH' || fail "$file has a run path"
	done < <(files_below "$root")
}

# not_hardened FILE: says what an ELF file was not compiled or linked with, and fails if it has all of it.
not_hardened() {
	local file=$1 headers dynamic symbols lacks=()
	headers=$(readelf -Wlh "$file") dynamic=$(readelf -Wd "$file") symbols=$(readelf -W --dyn-syms "$file")
	grep -qE '^ *Type: *DYN' <<<"$headers" || lacks+=("position independent code")
	! grep -q ' INTERP ' <<<"$headers" || grep -q 'FLAGS_1.* PIE' <<<"$dynamic" || lacks+=("position independent program")
	grep -q ' GNU_RELRO ' <<<"$headers" || lacks+=(relro)
	grep -qE 'BIND_NOW|FLAGS_1.* NOW' <<<"$dynamic" || lacks+=("binding at start")
	grep -E ' GNU_STACK ' <<<"$headers" | grep -q ' RW ' || lacks+=("stack that is not executed")
	! grep -qE '^ +LOAD .* (RWE|WE) ' <<<"$headers" || lacks+=("code that is not written")
	grep -E '^ +LOAD ' <<<"$headers" | head -n 1 | grep -q ' R  ' || lacks+=("code apart from data")
	! grep -q TEXTREL <<<"$dynamic" || lacks+=("code without relocations")
	grep -q __stack_chk_fail <<<"$symbols" || lacks+=("stack protector")
	grep -qE '__[a-z]+_chk(@| |$)' <<<"$symbols" || lacks+=(fortify)
	if [ "$(uname -m)" = x86_64 ]; then
		[ "$(objdump -d --no-show-raw-insn "$file" | grep -c endbr64)" -ge 5 ] || lacks+=("control flow protection")
	fi
	[ ${#lacks[@]} -gt 0 ] || return 1
	(IFS=, && echo "$file lacks ${lacks[*]}")
}

# expect_hardened ROOT N: all ELF files below it, which are N.
expect_hardened() {
	local root=$1 file n=0
	while read -r file; do
		[ ! -L "$root/$file" ] && [ "$(head -c 4 "$root/$file" | tr -d '\0')" = $'\x7fELF' ] || continue
		n=$((n + 1))
		! not_hardened "$root/$file" >"$WORK/lacks" || fail "$(cat "$WORK/lacks")"
	done < <(files_below "$root")
	[ "$n" -eq "$2" ] || fail "$n programs and libraries below $root instead of $2"
}

# expect_version TEXT: the release, perhaps with what git says.
RELEASE=$(sed -n 's/^project(nccl-ha VERSION \([0-9.]*\).*/\1/p' "$SOURCE/CMakeLists.txt")
expect_version() {
	[[ $1 =~ ^${RELEASE//./\\.}(\+([0-9]+\.)?g?[0-9a-f]+(\.dirty)?)?$ ]] || fail "'$1' is not a version"
}

# expect_works BIN LIB: tools in one folder, the plugin in another. The plugin that is loaded must be that
# one, on a fabric of the installed library.
expect_works() {
	local bin=$1 lib=$2 tool version loaded
	for tool in nccl-net-check nccl-net-perf simverbs nccl-ha nccl-ha-agent nccl-ha-ctrld nccl-ha-switchd; do
		version=$("$bin/$tool" --version) || fail "$tool --version"
		expect_version "${version##* }"
	done
	expect_version "$(strings -a "$lib/libnccl-net-ha.so" | sed -n 's/^nccl-ha \([0-9]*\.[0-9]\)/\1/p' | head -n 1)"
	"$bin/nccl-net-check" --plugin ha --api newest --simverbs 2x2 --quick >"$WORK/out" 2>&1 ||
		fail "nccl-net-check: $(cat "$WORK/out")"
	grep -qE '[1-9][0-9]* passed, 0 failed' "$WORK/out" || fail "nccl-net-check: $(cat "$WORK/out")"
	"$bin/nccl-net-perf" --plugin ha --simverbs 2x2 -b 1M -e 1M --seconds 1 --json "$WORK/perf.json" \
		--fault 'link=down host=0 rail=0 op=write nth=100 count=1' >"$WORK/out" 2>&1 || fail "nccl-net-perf: $(cat "$WORK/out")"
	grep -q '"failovers": [1-9]' "$WORK/perf.json" || fail "nothing failed over: $(cat "$WORK/out")"
	loaded=$(sed -n 's/.*"path": "\(.*\)",$/\1/p' "$WORK/perf.json")
	[ "$(realpath "$loaded")" = "$(realpath "$lib/libnccl-net-ha.so")" ] || fail "another plugin was loaded: $loaded"
}
