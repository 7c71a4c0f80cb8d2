#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installer's image: the folder that it is built from, and its program, which puts the plugin where jobs find it, with all
# that may go wrong on the way. Where busybox is installed, with its programs, too. No image is built here: image_build.sh.
# As root the program is run as nobody, who gets into no folder of root's.
[ "$(id -u)" -ne 0 ] || export TMPDIR=/tmp
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
can_make_wheels || skip "Python's build, setuptools, wheel or venv is not installed (packages python3-…)"
context=$WORK/context
"$SOURCE/scripts/packaging/image/context.sh" "$BUILD" "$context" >"$WORK/log" 2>&1 || fail "context.sh: $(tail -n 20 "$WORK/log")"
expect_files "$context" Dockerfile nccl-ha-install nccl-ha/{VERSION,SHA256SUMS,LICENSE,copyright,nccl-ha-wheel.spdx.json} \
	nccl-ha/libnccl-net-ha.so nccl-ha/lib*/libnccl-net-ha.so nccl-ha/bin/{nccl-ha,nccl-ha-agent,nccl-ha-ctrld,nccl-ha-switchd,nccl-net-check,nccl-net-perf}
expect_no_paths "$context"

# another VERSION_PART: an image of another build.
another() {
	cp -RP "$context/nccl-ha" "$WORK/image-$1"
	echo "$1" >>"$WORK/image-$1/copyright"
	(cd "$WORK/image-$1" && find . -type f ! -name VERSION ! -name SHA256SUMS | sort | xargs sha256sum >SHA256SUMS && echo "0.0-$1" >VERSION)
}
another second && another third
first=$(cat "$context/nccl-ha/VERSION")

# In the cluster it is root without any right, or nobody: here nobody, as soon as it can be.
as_nobody() { if [ "$(id -u)" -eq 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi; }
install_from() { # IMAGE COMMAND_BEFORE...: into $folder
	local image=$1
	shift
	as_nobody env "PATH=$tools:$PATH" NCCL_HA_SOURCE="$image" "$@" "${shell[@]}" "$context/nccl-ha-install" "$folder" >"$WORK/out" 2>&1
}
installs() { install_from "$@" || fail "nccl-ha-install: $(cat "$WORK/out")"; }
expect_refused() { # PATTERN IMAGE COMMAND_BEFORE...
	local pattern=$1
	shift
	! install_from "$@" || fail "it says that all is well: $(cat "$WORK/out")"
	grep -qE "$pattern" "$WORK/out" || fail "not '$pattern': $(cat "$WORK/out")"
}
# expect_versions CURRENT OTHER...: these, whole, the first for jobs that start, and nothing else.
expect_versions() {
	local version there
	[ "$(readlink "$folder/current")" = "$1" ] || fail "current is $(readlink "$folder/current"), not $1"
	for version; do (cd "$folder/$version" && sha256sum --quiet -c SHA256SUMS) || fail "$version is not whole"; done
	there=$(cd "$folder" && find . -mindepth 1 -maxdepth 1 ! -name stranger | sort)
	[ "$there" = "$(printf './%s\n' current "$@" | sort)" ] || fail "in the folder: $there"
}

try_all() {
	folder=$WORK/host-$1/opt/nccl-ha
	mkdir -p "$WORK/host-$1" && chmod 755 "$WORK" && chmod 777 "$WORK/host-$1"

	# Into a folder that is not there yet; what a job is told to load is loaded; again, and nothing changes.
	installs "$context/nccl-ha"
	expect_versions "$first"
	plugin=$(sed -n 's/.*NCCL_NET_PLUGIN=//p' "$WORK/out")
	"$folder/current/bin/nccl-net-check" --plugin "$plugin" --api newest --rule vtable >"$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
	"$BUILD/bin/nccl-net-check" --plugin "$plugin" --api newest --simverbs 1x2 --rule init >"$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
	grep -q "$folder/current/libnccl-net-ha.so" "$WORK/out" || fail "another plugin was loaded: $(cat "$WORK/out")"
	before=$(ls -lAiR --time-style=full-iso "$folder")
	installs "$context/nccl-ha"
	[ "$before" = "$(ls -lAiR --time-style=full-iso "$folder")" ] || fail "a second time something is changed"

	# Damaged files are replaced and not written to: who has one mapped keeps what it has. So is a link that is gone.
	library=$(realpath "$folder/current/libnccl-net-ha.so")
	exec 3<"$library"
	truncate -s 1000 "$library"
	rm "$folder/current/libnccl-net-ha.so"
	installs "$context/nccl-ha"
	expect_versions "$first"
	cmp "$library" "$context"/nccl-ha/lib*/libnccl-net-ha.so || fail "the library is not mended"
	[ "$(wc -c <&3)" -eq 1000 ] || fail "a file that somebody has open was written to"
	exec 3<&-

	# No room: jobs keep what they have.
	expect_refused 'could not be copied to .*: is it full' "$WORK/image-second" prlimit --fsize=100000
	expect_versions "$first"

	# A newer one: the one before stays, for jobs that start now, what is older goes, and what is not ours stays.
	mkdir "$folder/stranger" && echo 1 >"$folder/stranger/VERSION"
	installs "$WORK/image-second"
	expect_versions 0.0-second "$first"
	installs "$WORK/image-third"
	expect_versions 0.0-third 0.0-second
	installs "$WORK/image-third"
	expect_versions 0.0-third 0.0-second
	[ -e "$folder/stranger/VERSION" ] || fail "something of somebody else's was removed"

	# Where nothing may be written, and what is no image.
	chmod 555 "$folder"
	expect_refused 'cannot be written to: by user [0-9]+, mounted read-only' "$context/nccl-ha"
	chmod 755 "$folder"
	expect_refused 'has no version' "$WORK/no-image"
	expect_versions 0.0-third 0.0-second
}

tools=$WORK/tools
mkdir "$tools"
shell=(sh)
try_all sh

# A copy that says it is well and is not; an end in the midst of it. Jobs keep what they have. (busybox may have a cp of its own.)
faulty_cp() { # WHAT_COMES_AFTER
	mkdir -p "$WORK/faulty"
	printf '#!/bin/sh\n%s "$@"; %s\n' "$(command -v cp)" "$1" >"$WORK/faulty/cp" && chmod 755 "$WORK/faulty/cp"
}
faulty_cp 'for to; do :; done; find "$to" -name "libnccl*" -type f -exec truncate -s 1000 {} +; touch '"$WORK/host-sh/cut"
expect_refused 'could not be copied' "$context/nccl-ha" env "PATH=$WORK/faulty:$PATH"
[ -e "$WORK/host-sh/cut" ] || fail "the copy was not cut"
expect_versions 0.0-third 0.0-second
# shellcheck disable=SC2016
faulty_cp 'kill -KILL $PPID'
install_from "$context/nccl-ha" env "PATH=$WORK/faulty:$PATH"
[ $? -eq 137 ] || fail "it was not killed: $(cat "$WORK/out")"
[ "$(readlink "$folder/current")" = 0.0-third ] || fail "current changed before all was there"
[ -n "$(find "$folder" -name '.new.*')" ] || fail "it was not in the midst of it"
installs "$context/nccl-ha"
expect_versions "$first" 0.0-third

if command -v busybox >/dev/null; then
	for tool in cat chmod cmp cp id ln mkdir mktemp mv readlink rm sha256sum; do ln -s "$(command -v busybox)" "$tools/$tool"; done
	shell=(busybox sh)
	try_all busybox
else
	echo "busybox is not installed: tried with sh and coreutils only"
fi
echo "made, installed, mended, updated"
