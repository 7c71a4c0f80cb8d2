#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packages that are made twice of the same are the same, byte by byte. Either twice of one build, at another time;
# or, with `build` behind the folders, built in two places without a cache.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
unset SOURCE_DATE_EPOCH
umask 022
kinds=()
! command -v dpkg-shlibdeps >/dev/null || kinds+=(DEB)
! command -v rpmbuild >/dev/null || kinds+=(RPM)
wheels=0
! can_make_wheels || wheels=1
[ ${#kinds[@]} -gt 0 ] || skip "neither dpkg-shlibdeps nor rpmbuild is installed (packages dpkg-dev, rpm)"

make_packages() { # BUILD OUT
	local kind
	for kind in "${kinds[@]}"; do
		(cd "$1" && cpack -G "$kind" -B "$2") >"$WORK/log" 2>&1 || fail "cpack -G $kind: $(cat "$WORK/log")"
	done
	rm -rf "$2/_CPack_Packages"
	[ $wheels -eq 0 ] || make_wheel "$1" "$2"
}

# build_in FOLDER: the tree as it is, without git.
build_in() {
	mkdir -p "$1/source"
	git -C "$SOURCE" ls-files -z --cached --others --exclude-standard | (cd "$SOURCE" && xargs -0 tar -c --ignore-failed-read) |
		tar -x -C "$1/source" || fail "the tree cannot be copied"
	cmake -S "$1/source" -B "$1/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_INSTALL_PREFIX=/usr -DHA_BUILD_TESTS=OFF \
		>"$WORK/log" 2>&1 && nice cmake --build "$1/build" -j2 >"$WORK/log" 2>&1 || fail "build: $(tail -n 20 "$WORK/log")"
}

if [ "${3-}" = build ]; then
	unset CMAKE_C_COMPILER_LAUNCHER
	export CCACHE_DISABLE=1
	for place in one another/place; do
		build_in "$WORK/$place"
	done
	first=$WORK/one/build second=$WORK/another/place/build
else
	first=$BUILD second=$BUILD
fi
make_packages "$first" "$WORK/first"
sleep 2
make_packages "$second" "$WORK/second"
names=("$WORK"/first/*)
[ ${#names[@]} -eq $((3 * ${#kinds[@]} + wheels)) ] || fail "not three packages of each kind, and a wheel: ${names[*]}"
for package in "${names[@]}"; do
	cmp "$package" "$WORK/second/$(basename "$package")" || fail "$(basename "$package") differs"
done

# They carry the time that they are given, and nothing is for the builder alone, whatever the mask. (A link has none.)
(umask 077 && export SOURCE_DATE_EPOCH=1234567890 && make_packages "$first" "$WORK/then") || exit 1
for package in "$WORK"/then/*; do
	! cmp -s "$package" "$WORK/first/$(basename "$package")" || fail "$(basename "$package") does not carry SOURCE_DATE_EPOCH"
	case $package in
	*.deb) dpkg-deb -c "$package" ;;
	*.rpm) rpm -qplv "$package" ;;
	*.whl) "$(packager_python)" -c "import stat, sys, zipfile
for entry in zipfile.ZipFile(sys.argv[1]).infolist(): print(stat.filemode(stat.S_IFREG | entry.external_attr >> 16), entry.filename)" "$package" ;;
	esac >"$WORK/list" 2>/dev/null || fail "$package cannot be listed"
	! grep -vE '^(l|d.{6}r.x|-.{6}r..)' "$WORK/list" || fail "$(basename "$package") has files or folders that not all can read"
done
[ $wheels -eq 0 ] || kinds+=(WHEEL)
echo "the same: ${kinds[*]}"
