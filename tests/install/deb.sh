#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The packages for Debian: made, looked at, installed by dpkg into a root of their own, used, removed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
need dpkg dpkg
need dpkg-shlibdeps dpkg-dev
lib=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$BUILD/CMakeCache.txt")

make_packages DEB
packages=("$WORK"/packages/*.deb)
[ ${#packages[@]} -eq 3 ] || fail "not three packages: ${packages[*]}"
field() { dpkg-deb -f "$WORK"/packages/"$1"_"$RELEASE"_*.deb "$2"; }
expect_field() { # PACKAGE FIELD PATTERN
	[[ $(field "$1" "$2") =~ $3 ]] || fail "$1: $2 is '$(field "$1" "$2")', not $3"
}
expect_field nccl-ha Depends 'libc6 \(>= .*libibverbs1 \(>=.*libmicrohttpd'
expect_field nccl-ha Recommends ibverbs-providers
expect_field nccl-ha Section '^net$'
expect_field nccl-ha Description 'survives the loss'
expect_field nccl-ha-dev Depends "nccl-ha \\(= $RELEASE\\)"
expect_field nccl-ha-simverbs Depends '^libc6 \(>= [0-9.]*\)$'
for package in "${packages[@]}"; do
	dpkg-deb --fsys-tarfile "$package" | tar -tv | grep -v ' root/root ' && fail "$package: owners"
	dpkg-deb --ctrl-tarfile "$package" | tar -t | grep -E 'inst$|rm$' && fail "$package: scripts are not needed"
done

if command -v lintian >/dev/null; then
	lintian --allow-root --fail-on error "${packages[@]}" >"$WORK/log" 2>&1 || fail "lintian: $(cat "$WORK/log")"
else
	echo "lintian is not installed: not asked"
fi

# A root with nothing in it but the knowledge of what this machine has installed, so that dependencies
# are checked for real.
root=$WORK/root
mkdir -p "$root/var/lib/dpkg"/{info,updates,triggers}
cp /var/lib/dpkg/status "$root/var/lib/dpkg/"
cp /var/lib/dpkg/info/{format,*.list} "$root/var/lib/dpkg/info/" 2>/dev/null
dpkg_there() { as_root dpkg --root="$root" --force-not-root --log=/dev/null "$@" >"$WORK/log" 2>&1; }
dpkg-query -W -f '${db:Status-Abbrev}' libibverbs1 2>/dev/null | grep -q '^ii' ||
	skip "libibverbs1 is not installed by a package: dependencies cannot be checked"
! dpkg-query -W nccl-ha nccl-ha-dev nccl-ha-simverbs >/dev/null 2>&1 || skip "nccl-ha is installed on this machine"

ours() { files_below "$root" | grep -v '^var/lib/dpkg/'; }
[ -z "$(ours)" ] || fail "the root is not empty: $(ours)"

# Headers without the plugin are refused.
! dpkg_there -i "$WORK"/packages/nccl-ha-dev_*.deb || fail "nccl-ha-dev without nccl-ha"
grep -q 'nccl-ha-dev depends on nccl-ha' "$WORK/log" || fail "dpkg: $(cat "$WORK/log")"
dpkg_there -P nccl-ha-dev || fail "dpkg -P nccl-ha-dev: $(cat "$WORK/log")"

dpkg_there -i "${packages[@]}" || fail "dpkg -i: $(cat "$WORK/log")"
mapfile -t expected < <(expected_files "$lib")
mkdir "$WORK/look"
cp -a "$root/usr" "$WORK/look/"
expect_files "$WORK/look" "${expected[@]}"
expect_no_paths "$WORK/look"
expect_hardened "$WORK/look" 11
try_as_installed "$root" "$lib"

# The same packages once more, and all of them away.
dpkg_there -i "${packages[@]}" || fail "dpkg -i, again: $(cat "$WORK/log")"
dpkg_there -P nccl-ha-dev nccl-ha nccl-ha-simverbs || fail "dpkg -P: $(cat "$WORK/log")"
[ -z "$(ours)" ] || fail "left behind: $(ours)"
[ -z "$(find "$root" -mindepth 1 ! -path "$root/var*")" ] || fail "folders left behind: $(find "$root" ! -path "$root/var*")"
echo "made, installed, used, removed"
