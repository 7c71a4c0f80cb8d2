#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wheel: made, looked at, installed into a clean virtual environment without an index, used as a new user would.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
can_make_wheels || skip "Python's build, setuptools, wheel or venv is not installed (packages python3-…)"
maker=$SOURCE/scripts/packaging/wheel/make.py
python=$(packager_python)

make_wheel "$BUILD" "$WORK/wheels"
wheel=("$WORK"/wheels/*)
name=$(basename "${wheel[@]}")
[ "$name" = "nccl_ha-$RELEASE-py3-none-manylinux_2_34_$(uname -m).whl" ] || fail "it is called $name"
[ "$(stat -c %s "${wheel[@]}")" -lt 3000000 ] || fail "it has $(stat -c %s "${wheel[@]}") bytes"

# What is in it needs no newer C library than its name says, and of libraries the host's RDMA alone.
"$python" -m zipfile -e "${wheel[@]}" "$WORK/look"
expect_no_paths "$WORK/look"
expect_hardened "$WORK/look" 9
elf=0
while read -r file; do
	[ "$(head -c 4 "$WORK/look/$file" | tr -d '\0')" = $'\x7fELF' ] || continue
	elf=$((elf + 1))
	newest=$(objdump -T "$WORK/look/$file" | grep -o 'GLIBC_[0-9.]*' | sort -V | tail -n 1)
	[ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.34 ] || fail "$file needs $newest"
	needed=$(objdump -p "$WORK/look/$file" | sed -n 's/^ *NEEDED *//p' | grep -vE '^(libc\.so\.6|libm\.so\.6|ld-linux.*)$')
	case $file in
	*/libnccl-net-ha.so | */nccl-ha-switchd) [ "$needed" = libibverbs.so.1 ] || fail "$file needs $needed" ;;
	*) [ -z "$needed" ] || fail "$file needs $needed" ;;
	esac
done < <(files_below "$WORK/look")
[ "$elf" -eq 9 ] || fail "$elf programs and libraries"
[ -s "$WORK/look/nccl_ha/nccl-ha-wheel.spdx.json" ] || fail "nothing says what it is made of"

# One that would be too new for its name is not made: its C library knows something that 2.34 does not.
cd "$WORK" || exit 1
echo 'void newer(void) {}' >libc.c && echo 'GLIBC_2.35 { newer; };' >libc.map
echo 'void newer(void); void calls(void); void calls(void) { newer(); }' >calls.c
cc -shared -fPIC -nostdlib -Wl,-soname,libc.so.6 -Wl,--version-script=libc.map -o libc.so.6 libc.c &&
	cc -shared -fPIC -nostdlib -o calls.so calls.c ./libc.so.6 || fail "cc"
! "$python" "$maker" --look calls.so 2>"$WORK/log" || fail "a symbol of glibc 2.35 is let through"
grep -q 'calls.so: newer is of glibc 2.35' "$WORK/log" || fail "$(cat "$WORK/log")"
echo 'void found(void) {}' >other.c
cc -shared -fPIC -nostdlib -Wl,-soname,libother.so.1 -o libother.so.1 other.c &&
	echo 'void found(void); void calls(void); void calls(void) { found(); }' >calls.c &&
	cc -shared -fPIC -nostdlib -o calls.so calls.c ./libother.so.1 || fail "cc"
! "$python" "$maker" --look calls.so 2>"$WORK/log" || fail "a library of somebody is let through"
grep -q 'calls.so: it needs libother.so.1' "$WORK/log" || fail "$(cat "$WORK/log")"

# A new user's.
"$python" -m venv "$WORK/venv" || fail "venv"
files_below "$WORK/venv" >"$WORK/before"
"$WORK/venv/bin/pip" install --no-index --disable-pip-version-check "${wheel[@]}" >"$WORK/log" 2>&1 || fail "pip: $(cat "$WORK/log")"
export PATH=$WORK/venv/bin:$PATH
plugin=$(python -m nccl_ha) || fail "python -m nccl_ha"
[[ $plugin == /*/libnccl-net-ha.so && -f $plugin ]] || fail "the plugin's path is '$plugin'"
package=$(dirname "$(dirname "$plugin")")
while [ ! -d "$package/bin" ]; do package=$(dirname "$package"); done
expect_works "$package/bin" "$(dirname "$plugin")"
for tool in nccl-ha nccl-ha-agent nccl-ha-ctrld nccl-ha-switchd nccl-net-check nccl-net-perf simverbs; do
	[ "$(command -v $tool)" = "$WORK/venv/bin/$tool" ] || fail "$tool is $(command -v $tool)"
	[ "$($tool --version)" = "$("$package/bin/$tool" --version)" ] || fail "$tool: $($tool --version)"
done
! nccl-ha metrics --listen 0 >"$WORK/out" 2>&1 && grep -q 'no HTTP server.*--textfile' "$WORK/out" || fail "$(cat "$WORK/out")"

# run: all that a job needs; what is set stays, but for another plugin.
job() { python -m nccl_ha run "$@" 2>"$WORK/err"; }
# shellcheck disable=SC2016
show='echo "$NCCL_NET_PLUGIN|$NCCL_NET|$HA_NCCL_OUTAGE_MS|$(ulimit -S -l)"'
most=$(ulimit -H -l)
expect_job() { # EXPECTED SAID ENV...
	local expected=$1 said=$2 got
	shift 2
	got=$(env "$@" python -m nccl_ha run -- sh -c "$show" 2>"$WORK/err") || fail "run: $(cat "$WORK/err")"
	[ "$got" = "$expected" ] || fail "run with $*: '$got', not '$expected'"
	[[ $(cat "$WORK/err") =~ ^${said:+.*}$said${said:+.*}$ ]] || fail "run with $* says '$(cat "$WORK/err")', not '$said'"
}
(ulimit -S -l 64 && expect_job "$plugin|HA||$most" '' A=1) || exit 1
expect_job "$plugin|HA|5000|$most" '' NCCL_NET_PLUGIN=ha HA_NCCL_OUTAGE_MS=5000
expect_job "$plugin|HA||$most" "was 'spcx'" NCCL_NET_PLUGIN=spcx
expect_job "$plugin|IB||$most" "NCCL_NET is 'IB' and stays so" NCCL_NET=IB
job sh -c 'exit 7'
[ $? -eq 7 ] || fail "the command's exit status is lost"
job no-such-command
[ $? -eq 127 ] || fail "a command that is not there"
job "$WORK/before"
[ $? -eq 126 ] || fail "a file that is no program"
job -- 2>/dev/null
[ $? -eq 2 ] || fail "no command is wrong usage"

# check: at most ten lines, the last of which is the verdict.
expect_check() { # STATUS PATTERN COMMAND...
	local status=$1 pattern=$2 got
	shift 2
	"$@" >"$WORK/out" 2>&1
	got=$?
	[ "$got" -eq "$status" ] && tail -n 1 "$WORK/out" | grep -qE "^verdict +$pattern" ||
		fail "exit status $got, expected $status and '$pattern': $(cat "$WORK/out")"
	[ "$(wc -l <"$WORK/out")" -le 10 ] || fail "more than ten lines: $(cat "$WORK/out")"
}
on_fabric() { # RAILS COMMAND...
	local rails=$1 status
	shift
	simverbs up "wheel-$$" --hosts 1 --rails "$rails" || fail "simverbs up"
	simverbs run "wheel-$$" 0 -- "$@"
	status=$?
	simverbs down "wheel-$$"
	return $status
}
check=(python -m nccl_ha check)
expect_check 0 protected on_fabric 2 "${check[@]}"
grep -qE '^traffic +8 of 8 connections .* are protected' "$WORK/out" || fail "$(cat "$WORK/out")"
expect_check 1 'NOT PROTECTED: connections over sim0:1 have no second path$' on_fabric 1 "${check[@]}"
expect_check 1 "NOT PROTECTED: NCCL_NET_PLUGIN is 'spcx', another plugin$" env NCCL_NET_PLUGIN=spcx SLURM_PROCID=1 SLURM_NTASKS=2 \
	bash -c "$(declare -f on_fabric fail); on_fabric 2 ${check[*]}"
expect_check 1 "NOT PROTECTED: NCCL_NET is 'Socket'.*; a variable cannot be used.*; NCCL could not use the plugin here: devices reports 0 devices$" \
	env NCCL_NET=Socket HA_NCCL_OUTAGE_MS=soon NCCL_IB_HCA=none_of_these "${check[@]}"
mv "$plugin" "$plugin.away" && echo 'no library' >"$plugin"
expect_check 1 'NOT PROTECTED: NCCL could not use the plugin here: .*(cannot load|invalid ELF|too short)' "${check[@]}"
mv "$plugin.away" "$plugin"
mv "$package/bin/nccl-net-check" "$WORK/" # what cannot be asked is no verdict
"${check[@]}" >"$WORK/out" 2>&1
[ $? -eq 2 ] && grep -q 'could not be looked at: .*nccl-net-check' "$WORK/out" || fail "$(cat "$WORK/out")"
mv "$WORK/nccl-net-check" "$package/bin/"

pip uninstall -qy nccl-ha >"$WORK/log" 2>&1 || fail "pip uninstall: $(cat "$WORK/log")"
files_below "$WORK/venv" | grep -v __pycache__ | diff <(grep -v __pycache__ "$WORK/before") - || fail "left behind, see above"
echo "made, installed, used, removed"
