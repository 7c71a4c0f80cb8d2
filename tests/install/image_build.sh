#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installer's image, built by buildah without root and without a range of users of one's own, on a base made here; what is in
# it, as whom it ends, and that it installs from within its container.
# As root it is built by nobody, who gets into no folder of root's.
[ "$(id -u)" -ne 0 ] || export TMPDIR=/tmp
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
can_make_wheels || skip "Python's build, setuptools, wheel or venv is not installed (packages python3-…)"
need buildah buildah
need newgidmap uidmap
"$SOURCE/scripts/packaging/image/context.sh" "$BUILD" "$WORK/context" >"$WORK/log" 2>&1 || fail "context.sh: $(tail -n 20 "$WORK/log")"

# Another user than root, with a home that goes with the test.
as_nobody() { if [ "$(id -u)" -eq 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi; }
mkdir -p "$WORK/home/.config/containers" "$WORK/run" "$WORK/host" "$WORK/base"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$WORK/home/.config/containers/policy.json"
export HOME=$WORK/home XDG_RUNTIME_DIR=$WORK/run STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot TMPDIR=$WORK/run
buildah_() { as_nobody timeout 120 buildah --storage-opt vfs.ignore_chown_errors=true "$@" 2>"$WORK/log" || fail "buildah $1: $(cat "$WORK/log")"; }

# A base from nothing: a shell, and what the installer needs, with their libraries.
for program in /bin/sh cat chmod cmp cp id ln mkdir mktemp mv readlink rm sha256sum sleep; do
	path=$(command -v $program)
	for file in "$path" $(ldd "$path" 2>/dev/null | grep -o '/[^ ]*'); do
		mkdir -p "$WORK/base$(dirname "$file")" && cp -Lu "$file" "$WORK/base$file"
	done
done
mkdir -p "$WORK/base"/{tmp,opt,dev}
printf 'FROM scratch\nCOPY . /\nENV PATH=%s\n' "/usr/local/bin:$PATH" >"$WORK/base.file"
[ "$(id -u)" -ne 0 ] || chown -R 65534:65534 "$WORK"
chmod 755 "$WORK"
as_nobody unshare -r true 2>/dev/null || skip "users may have no name spaces of their own here"
buildah_ build --file "$WORK/base.file" --tag localhost/base "$WORK/base" >/dev/null

buildah_ build --pull-never --build-arg BASE=localhost/base --tag localhost/nccl-ha-installer "$WORK/context" >/dev/null
buildah_ inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Cmd}}' localhost/nccl-ha-installer >"$WORK/out"
[ "$(cat "$WORK/out")" = "65534:65534 [nccl-ha-install /opt/nccl-ha]" ] || fail "the image ends as $(cat "$WORK/out")"

# Run as the DaemonSet runs it: root of the container, with the host's folder; and what it leaves is whole. In a chroot of ours, since
# buildah's own sets groups, which takes a range of them.
container=$(buildah_ from --pull-never localhost/nccl-ha-installer) || exit 1
# shellcheck disable=SC2016
buildah_ unshare sh -c 'root=$(buildah mount "$1") && mount --bind "$2" "$root/opt" && mount --rbind /dev "$root/dev" && exec env -i PATH="/usr/local/bin:$PATH" \
	chroot "$root" nccl-ha-install /opt/nccl-ha' sh "$container" "$WORK/host" >"$WORK/out"
grep -q 'NCCL_NET_PLUGIN=/opt/nccl-ha/current/libnccl-net-ha.so' "$WORK/out" || fail "$(cat "$WORK/out")"
(cd "$WORK/host/nccl-ha/current/" && sha256sum --quiet -c SHA256SUMS) || fail "what is installed is not whole"
"$BUILD/bin/nccl-net-check" --plugin "$WORK/host/nccl-ha/current/libnccl-net-ha.so" --api newest --simverbs 1x2 --rule init >"$WORK/out" 2>&1 ||
	fail "$(cat "$WORK/out")"
buildah_ rm "$container" >/dev/null
echo "built and run by $(as_nobody buildah --version) as user $(as_nobody id -u)"
