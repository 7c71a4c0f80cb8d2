#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cmake --install: below a prefix, with DESTDIR, part by part, and moved somewhere else afterwards.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install_to() { # PREFIX ARGUMENT...
	local prefix=$1
	shift
	cmake --install "$BUILD" --prefix "$prefix" "$@" >"$WORK/log" 2>&1 || fail "cmake --install: $(cat "$WORK/log")"
}
libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$BUILD/CMakeCache.txt")

install_to "$WORK/first"
expect_no_paths "$WORK/first"
expect_hardened "$WORK/first" 11

# Who looks at programs sees what each of them lacks.
cat >"$WORK/plain.c" <<'PLAIN'
#include <stdio.h>
#include <string.h>
static int one(void) { return 1; }
static int two(void) { return 2; }
static int three(void) { return 3; }
static int four(void) { return 4; }
int (*functions[])(void) = {one, two, three, four};
int main(int argc, char **argv) { char text[64]; strcpy(text, argv[0]); printf("%s %d\n", text, functions[argc & 3]()); return 0; }
PLAIN
hardened=(-O2 -fPIE -pie -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
	"-Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code")
[ "$(uname -m)" != x86_64 ] || hardened+=(-fcf-protection=full)
expect_lack() { # TEXT FLAG...
	cc -o "$WORK/plain" "$WORK/plain.c" "${hardened[@]}" "${@:2}" || fail "cc ${*:2}"
	not_hardened "$WORK/plain" >"$WORK/lacks"
	[ "$(sed 's/.* lacks //' "$WORK/lacks")" = "$1" ] || fail "with '${*:2}': '$(cat "$WORK/lacks")' instead of '$1'"
}
expect_lack ""
expect_lack "position independent code,position independent program" -fno-pie -no-pie
expect_lack "binding at start" -Wl,-z,lazy
expect_lack "relro" -Wl,-z,norelro
expect_lack "stack that is not executed" -Wl,-z,execstack
expect_lack "code apart from data" -Wl,-z,noseparate-code
expect_lack "stack protector" -fno-stack-protector
expect_lack "fortify" -U_FORTIFY_SOURCE
[ "$(uname -m)" != x86_64 ] || expect_lack "control flow protection" -fcf-protection=none

# What pkg-config says leads to headers that compile.
if command -v pkg-config >/dev/null; then
	mv "$WORK/first" "$WORK/moved"
	export PKG_CONFIG_PATH=$WORK/moved/$libdir/pkgconfig
	[ "$(pkg-config --modversion nccl-ha)" = "$RELEASE" ] || fail "pkg-config --modversion"
	plugin=$(pkg-config --variable=plugindir nccl-ha)/libnccl-net-ha.so
	[ -e "$plugin" ] || fail "no $plugin"
	printf '#include <nccl_ha/stats.h>\n#include <nccl_ha/nccl_net.h>\nint main(void) { return sizeof(struct nccl_ha_stats_header) == 0; }\n' >"$WORK/use.c"
	# shellcheck disable=SC2046
	cc -o "$WORK/use" "$WORK/use.c" $(pkg-config --cflags nccl-ha) || fail "the headers do not compile"
	"$WORK/use" || fail "a program with the headers"
	# And to a library that somebody else's program links: puts with signals between two hosts, while a port goes down.
	# shellcheck disable=SC2046
	cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -o "$WORK/puts" "$WORK/moved/share/doc/nccl-ha-dev/examples/ibgda.c" \
		$(pkg-config --cflags --libs nccl-ha-ibgda) -Wl,-rpath-link,"$BUILD/simverbs" || fail "the example of nccl_ha/ibgda.h"
	needs=$(readelf -d "$WORK/puts" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^libc.so') || true
	[ "$needs" = libnccl-ha-ibgda.so.0 ] || fail "the example needs $needs"
	declared=$(grep -oE '\bha_ibgda_[a-z_]+\(' "$WORK/moved/include/nccl_ha/ibgda.h" | tr -d '(' | sort -u)
	exported=$(nm -D --defined-only "$WORK/moved/$libdir/libnccl-ha-ibgda.so.0" | sed -n 's/.* T \(.*\)@@NCCL_HA_IBGDA_0/\1/p' | sort)
	[ "$declared" = "$exported" ] || fail "declared: $declared; exported: $exported"
	# shellcheck disable=SC2046
	cc -std=c11 -Wall -Wextra -Werror -o "$WORK/sums" "$WORK/moved/share/doc/nccl-ha-dev/examples/inccl.c" \
		$(pkg-config --cflags --libs inccl) -Wl,-rpath-link,"$BUILD/simverbs" || fail "the example of inccl/inccl.h"
	needs=$(readelf -d "$WORK/sums" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^libc.so') || true
	[ "$needs" = libinccl.so.0 ] || fail "the example needs $needs"
	fabric=puts$$
	on_host() { # HOST ARGUMENT...
		LD_LIBRARY_PATH=$WORK/moved/$libdir:$BUILD/simverbs/mlx5 "$WORK/moved/bin/simverbs" run "$fabric" "$1" -- "$WORK/puts" "${@:2}"
	}
	"$WORK/moved/bin/simverbs" up "$fabric" --hosts 2 --rails 2 >/dev/null || fail "simverbs up"
	"$WORK/moved/bin/simverbs" fault "$fabric" 'link=down host=0 rail=0 op=write nth=500 count=1' >/dev/null || fail "simverbs fault"
	on_host 1 receive $((20000 + $$ % 10000)) >"$WORK/received" 2>&1 &
	receiver=$!
	on_host 0 put 127.0.0.1 $((20000 + $$ % 10000)) 3000 500 >"$WORK/put" 2>&1 &
	sender=$!
	wait $sender || { "$WORK/moved/bin/simverbs" down "$fabric"; fail "the example: $(cat "$WORK/put")"; }
	wait $receiver || { "$WORK/moved/bin/simverbs" down "$fabric"; fail "the example: $(cat "$WORK/received")"; }
	"$WORK/moved/bin/simverbs" down "$fabric"
	grep -qE '^put 3000, [1-9][0-9]* failovers$' "$WORK/put" || fail "the example: $(cat "$WORK/put")"
	grep -qx 'received 3000, 0 wrong: the other end is gone' "$WORK/received" || fail "the example: $(cat "$WORK/received")"
else
	mv "$WORK/first" "$WORK/moved"
	echo "pkg-config is not installed: nccl-ha.pc is not looked at"
fi

expect_works "$WORK/moved/bin" "$WORK/moved/$libdir"

# DESTDIR, and one part alone.
DESTDIR=$WORK/dest install_to /opt/ha --component plugin
rm -rf "$WORK/dest/opt/ha/share/lintian"
expect_files "$WORK/dest" "opt/ha/$libdir/libnccl-net-ha.so" 'opt/ha/share/man/man7/nccl-net-ha.7*' 'opt/ha/share/man/man7/nccl-ha-config.7*' \
	'opt/ha/share/doc/nccl-ha/*'
DESTDIR=$WORK/dest2 install_to /opt/ha --component simverbs
expect_files "$WORK/dest2" opt/ha/bin/simverbs "opt/ha/$libdir/nccl-ha/simverbs/libibverbs.so.1" \
	opt/ha/include/simverbs/simverbs.h 'opt/ha/share/man/man1/simverbs.1*' \
	'opt/ha/share/doc/nccl-ha-simverbs/*' opt/ha/share/bash-completion/completions/simverbs

# In a shell, TAB knows commands and options.
completes() { # PROGRAM EXPECTED WORD...
	(
		PATH=$WORK/moved/bin:$PATH
		# shellcheck source=scripts/packaging/completion.bash
		source "$WORK/moved/share/bash-completion/completions/$1" || exit 1
		COMP_WORDS=("$1" "${@:3}") COMP_CWORD=$(($# - 2))
		_nccl_ha_complete "$1" "${*: -1}"
		[[ " ${COMPREPLY[*]} " == *" $2 "* ]]
	) || fail "completion of $*"
}
completes simverbs device de
completes simverbs --rails= up --ra
completes nccl-ha status st
completes nccl-net-perf --plugin= --pl

# The name that NCCL loads unasked is there for who asks, and libraries go where a distribution has them.
cmake -S "$SOURCE" -B "$WORK/alias" -G Ninja -DHA_BUILD_TESTS=OFF -DHA_INSTALL_DEFAULT_ALIAS=ON \
	-DCMAKE_INSTALL_LIBDIR=lib64 >"$WORK/log" 2>&1 || fail "cmake: $(cat "$WORK/log")"
grep -q 'every NCCL job' "$WORK/log" || fail "the alias is not explained"
cp -r "$BUILD/libnccl-net-ha.so" "$BUILD/changelog.gz" "$WORK/alias/"
cp -r "$BUILD/docs/man" "$WORK/alias/docs/"
cmake --install "$WORK/alias" --prefix "$WORK/dest3" --component plugin >"$WORK/log" 2>&1 || fail "$(cat "$WORK/log")"
[ "$(readlink "$WORK/dest3/lib64/libnccl-net.so")" = libnccl-net-ha.so ] || fail "no libnccl-net.so"
[ -f "$WORK/dest3/lib64/libnccl-net-ha.so" ] || fail "no lib64"
grep -qF 'HA_INSTALLED_SIMVERBS=\"../lib64/nccl-ha/simverbs\"' "$WORK/alias/build.ninja" || fail "simverbs looks elsewhere"

# The version of a tree that git knows, of one that it does not know, and of one in somebody else's.
version_of() {
	cmake -DROOT="$1" -DRELEASE=1.2.3 -DOUT="$WORK/version.c" -P "$SOURCE/src/base/version.cmake" || fail "version.cmake"
	sed -n 's/.*"nccl-ha \(.*\)";/\1/p' "$WORK/version.c" | head -n 1
}
if command -v git >/dev/null; then
	tree=$WORK/git/tree
	mkdir -p "$tree"
	git_in() { git -C "$WORK/git" -c user.name=n -c user.email=n@example.org -c init.defaultBranch=main "$@" >/dev/null || fail "git $*"; }
	git_in init
	echo 1 >"$WORK/git/file"
	git_in add file
	git_in commit -m one
	commit=$(git -C "$WORK/git" rev-parse --short=12 HEAD)
	[ "$(version_of "$tree")" = 1.2.3 ] || fail "took the version of a tree around it"
	[ "$(version_of "$WORK/git")" = "1.2.3+g$commit" ] || fail "commit without a tag"
	git_in tag v1.2.3
	[ "$(version_of "$WORK/git")" = 1.2.3 ] || fail "a release"
	echo 2 >"$WORK/git/file"
	[ "$(version_of "$WORK/git")" = "1.2.3+0.g$commit.dirty" ] || fail "a release with changes: $(version_of "$WORK/git")"
	git_in commit -am two
	commit=$(git -C "$WORK/git" rev-parse --short=12 HEAD)
	[ "$(version_of "$WORK/git")" = "1.2.3+1.g$commit" ] || fail "after a release: $(version_of "$WORK/git")"
	touch -d '2000-01-01' "$WORK/version.c"
	version_of "$WORK/git" >/dev/null
	[ "$(stat -c %Y "$WORK/version.c")" -lt 1000000000 ] || fail "written again though nothing changed"
fi
mkdir "$WORK/archive"
[ "$(version_of "$WORK/archive")" = 1.2.3 ] || fail "an archive"
head -n 1 "$SOURCE/scripts/packaging/changelog" | grep -qF "($RELEASE)" ||
	fail "scripts/packaging/changelog does not begin with $RELEASE"
echo "installed, moved, works"
