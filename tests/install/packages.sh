# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What tests of packages share, whatever their format. Sourced after lib.sh.

# make_packages GENERATOR: into $WORK/packages.
make_packages() {
	(cd "$BUILD" && cpack -G "$1" -B "$WORK/packages") >"$WORK/log" 2>&1 || fail "cpack: $(cat "$WORK/log")"
	rm -rf "$WORK/packages/_CPack_Packages"
}

# The files of all packages once they are installed below a root. LIB is the folder of libraries.
expected_files() { # LIB
	local tool page
	printf '%s\n' "usr/$1/libnccl-net-ha.so" "usr/$1/libnccl-ha-ibgda.so.0" "usr/$1/libnccl-ha-ibgda.so" "usr/$1/pkgconfig/nccl-ha-ibgda.pc" "usr/$1/libinccl.so.0" "usr/$1/libinccl.so" "usr/$1/pkgconfig/inccl.pc" "usr/$1/nccl-ha/simverbs/libibverbs.so.1" "usr/$1/pkgconfig/nccl-ha.pc" \
		usr/include/simverbs/simverbs.h \
		'usr/share/doc/nccl-ha*/*' 'usr/share/bash-completion/completions/*' \
		'usr/share/nccl-ha/scripts/*' usr/share/nccl-ha/nccl-ha-metrics.service usr/share/nccl-ha/nccl-ha-ctrld.service usr/share/nccl-ha/nccl-ha-switchd.service 'usr/share/nccl-ha/monitoring/*'
	! command -v dpkg-shlibdeps >/dev/null || echo usr/share/lintian/overrides/nccl-ha
	(cd "$SOURCE" && printf 'usr/%s\n' include/nccl_ha/* include/inccl/*)
	for tool in nccl-ha nccl-ha-agent nccl-ha-ctrld nccl-ha-switchd nccl-net-check nccl-net-perf simverbs; do
		echo "usr/bin/$tool"
	done
	for page in "$SOURCE"/docs/man/*.[17]; do
		echo "usr/share/man/man${page##*.}/$(basename "$page")*"
	done
}

# NCCL asks the loader for the file by its name: from a program that is somewhere else.
expect_found() {
	cp /usr/bin/nccl-net-check "$WORK/nccl-net-check"
	simverbs up "found-$$" || fail "simverbs up"
	simverbs run "found-$$" 0 -- "$WORK/nccl-net-check" --plugin ha --api newest --rule init >"$WORK/out" 2>&1
	local status=$?
	simverbs down "found-$$"
	[ $status -eq 0 ] || fail "the loader does not find the plugin: $(cat "$WORK/out")"
}

# try_as_installed ROOT LIB: with its usr/ over this machine's, in a mount name space of its own, so that the
# programs and the loader find everything in its place. Where that is not allowed: below ROOT.
try_as_installed() {
	local root=$1 lib=$2 prefix=()
	[ "$(id -u)" -eq 0 ] || prefix=(-r)
	export -f fail expect_version expect_works
	export BUILD SOURCE WORK RELEASE
	export -f expect_found
	if unshare "${prefix[@]}" -m mount -t overlay -o "lowerdir=$root/usr:/usr" overlay /usr 2>/dev/null; then
		unshare "${prefix[@]}" -m bash -c "
			mount -t overlay -o 'lowerdir=$root/usr:/usr' overlay /usr && expect_works /usr/bin /usr/$lib && expect_found" ||
			fail "as installed in /usr"
		[ ! -e /usr/bin/simverbs ] || fail "the test changed this machine"
		echo "works in /usr"
	else
		expect_works "$root/usr/bin" "$root/usr/$lib"
		echo "works below another root (no mount name space here)"
	fi
}
