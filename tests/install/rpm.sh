#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The packages as RPMs: made, looked at, installed by rpm into a root of their own, used, removed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
need rpmbuild rpm
lib=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$BUILD/CMakeCache.txt")

make_packages RPM
packages=("$WORK"/packages/*.rpm)
[ ${#packages[@]} -eq 3 ] || fail "not three packages: ${packages[*]}"
runtime=$(ls "$WORK"/packages/nccl-ha-"$RELEASE"-*.rpm)
headers=$(ls "$WORK"/packages/nccl-ha-dev-"$RELEASE"-*.rpm)
fabric=$(ls "$WORK"/packages/nccl-ha-simverbs-"$RELEASE"-*.rpm)

says() { # FILE QUERY PATTERN
	rpm -qp "$2" "$1" >"$WORK/says" 2>/dev/null || fail "rpm -qp $2 $1"
	grep -qE -- "$3" "$WORK/says" || fail "$1: $2 does not say $3: $(cat "$WORK/says")"
}
says "$runtime" --requires '^libibverbs\.so\.1\(IBVERBS_1\.1\)'
says "$runtime" --requires '^libmicrohttpd\.so'
says "$runtime" -i '^License *: Apache-2\.0'
says "$runtime" -i 'survives the loss'
says "$runtime" -l "^/usr/$lib/libnccl-net-ha.so\$"
says "$headers" --requires "^nccl-ha = $RELEASE\$"
says "$fabric" -l "/nccl-ha/simverbs/libibverbs.so.1\$"
rpm -qp --provides "$fabric" 2>/dev/null | grep -F libibverbs && fail "simverbs says that it is libibverbs"
rpm -qp --scripts "${packages[@]}" 2>/dev/null | grep . && fail "scripts are not needed"
rpm -qpl "${packages[@]}" 2>/dev/null | grep -vE "^/usr/(bin|include|$lib|share)/" && fail "files elsewhere"

root=$WORK/root
mkdir "$root"
rpm_there() { as_root rpm --root "$root" --dbpath /rpmdb "$@" >"$WORK/log" 2>&1; }
rpm_there --initdb || fail "rpm --initdb: $(cat "$WORK/log")"
# This machine's own packages may be of another kind: what rpm itself thinks of dependencies is seen above.
rpm_there -i --nodeps "${packages[@]}" || fail "rpm -i: $(cat "$WORK/log")"
rpm_there --verify --nodeps nccl-ha nccl-ha-dev nccl-ha-simverbs || fail "rpm --verify: $(cat "$WORK/log")"
mapfile -t expected < <(expected_files "$lib")
mkdir "$WORK/look"
cp -a "$root/usr" "$WORK/look/"
expect_files "$WORK/look" "${expected[@]}"
expect_no_paths "$WORK/look"
expect_hardened "$WORK/look" 11
try_as_installed "$root" "$lib"

rpm_there -e --nodeps nccl-ha-dev nccl-ha nccl-ha-simverbs || fail "rpm -e: $(cat "$WORK/log")"
[ -z "$(find "$root" -mindepth 1 ! -path "$root/rpmdb*" ! -type d)" ] ||
	fail "left behind: $(find "$root" ! -path "$root/rpmdb*" ! -type d)"
[ -z "$(find "$root" -name '*nccl*')" ] || fail "folders left behind: $(find "$root" -name '*nccl*')"
echo "made, installed, used, removed"
