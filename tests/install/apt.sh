#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An apt repository: made and signed with a key of the moment, installed from and upgraded from in a root of its own; what is
# not as it was signed is refused.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
need apt-get apt
need apt-ftparchive apt-utils
need gpg gpg
need gpg-agent gpg-agent
need dpkg-shlibdeps dpkg-dev
dpkg-query -W -f '${db:Status-Abbrev}' libibverbs1 2>/dev/null | grep -q '^ii' ||
	skip "libibverbs1 is not installed by a package: dependencies cannot be met"
! dpkg-query -W nccl-ha nccl-ha-simverbs >/dev/null 2>&1 || skip "nccl-ha is installed on this machine"
maker=$SOURCE/scripts/packaging/apt.sh
repository=$WORK/repository
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

export GNUPGHOME=$WORK/gnupg
mkdir -m 700 "$GNUPGHOME"
trap 'gpgconf --kill all; rm -rf "$WORK"' EXIT
new_key() { gpg --batch --quiet --passphrase '' --quick-generate-key "$1" default sign 1d 2>"$WORK/log" || fail "gpg: $(cat "$WORK/log")"; }
new_key packager@nccl-ha.invalid
make_packages DEB

# Nobody's repository is not made.
expect_refused() { # PATTERN ENV...
	local pattern=$1
	shift
	! env "$@" "$maker" "$WORK/packages" "$repository" >"$WORK/log" 2>&1 || fail "it is made with $*"
	grep -q "$pattern" "$WORK/log" || fail "not '$pattern': $(cat "$WORK/log")"
	[ ! -e "$repository" ] || fail "something is left of it"
}
expect_refused 'HA_APT_KEY is not set' -u HA_APT_KEY
expect_refused "no secret key 'stranger@nccl-ha.invalid'" HA_APT_KEY=stranger@nccl-ha.invalid
export HA_APT_KEY=packager@nccl-ha.invalid
"$maker" "$WORK/packages" "$repository" >"$WORK/log" 2>&1 || fail "apt.sh: $(cat "$WORK/log")"

# A root with nothing in it but the knowledge of what this machine has installed, the key and the source.
root=$WORK/root
mkdir -p "$root/var/lib/dpkg"/{info,updates,triggers} "$root"/etc/apt/{apt.conf.d,preferences.d,sources.list.d,keyrings,trusted.gpg.d} \
	"$root"/var/lib/apt/lists/partial "$root"/var/cache/apt/archives/partial "$root"/var/log/apt
cp /var/lib/dpkg/status "$root/var/lib/dpkg/"
cp /var/lib/dpkg/info/{format,*.list} "$root/var/lib/dpkg/info/" 2>/dev/null
cp "$repository/nccl-ha.asc" "$root/etc/apt/keyrings/"
sed "s|^Signed-By: |&$root|" "$repository/nccl-ha.sources" >"$root/etc/apt/sources.list.d/nccl-ha.sources"
apt_there() {
	as_root apt-get -o "Dir=$root" -o "Dir::State::status=$root/var/lib/dpkg/status" -o APT::Sandbox::User=root \
		-o "DPkg::Options::=--root=$root" -o DPkg::Options::=--force-not-root -o DPkg::Options::=--log=/dev/null \
		-o Acquire::Languages=none -o APT::Get::Assume-Yes=true "$@" >"$WORK/log" 2>&1
}
version_there() { dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Version}' nccl-ha 2>/dev/null; }

apt_there update && ! grep -q '^[WE]:' "$WORK/log" || fail "apt-get update: $(cat "$WORK/log")"
apt_there install --no-install-recommends nccl-ha nccl-ha-simverbs || fail "apt-get install: $(cat "$WORK/log")"
[ "$(version_there)" = "$RELEASE" ] || fail "version '$(version_there)' is installed"
"$root/usr/bin/nccl-net-check" --plugin ha --api newest --simverbs 2x2 --rule init --rule data >"$WORK/out" 2>&1 ||
	fail "nccl-net-check: $(cat "$WORK/out")"
grep -q '^2 passed, 0 failed' "$WORK/out" || fail "nccl-net-check: $(cat "$WORK/out")"

# A newer version into the same repository: hosts get it, and can go back. It is packed in no time, which nobody asks about.
mkdir "$WORK/newer"
for package in "$WORK"/packages/*.deb; do
	dpkg-deb -R "$package" "$WORK/unpacked" && sed -i "s/$RELEASE/99.0/" "$WORK/unpacked/DEBIAN/control" &&
		dpkg-deb --root-owner-group -Zgzip -z1 -b "$WORK/unpacked" "$WORK/newer" >"$WORK/log" 2>&1 || fail "dpkg-deb: $(cat "$WORK/log")"
	rm -rf "$WORK/unpacked"
done
"$maker" "$WORK/newer" "$repository" >"$WORK/log" 2>&1 || fail "apt.sh, again: $(cat "$WORK/log")"
apt_there update || fail "apt-get update: $(cat "$WORK/log")"
apt_there upgrade || fail "apt-get upgrade: $(cat "$WORK/log")"
[ "$(version_there)" = 99.0 ] || fail "not upgraded: version '$(version_there)'"
apt_there install --allow-downgrades "nccl-ha=$RELEASE" || fail "back to $RELEASE: $(cat "$WORK/log")"
[ "$(version_there)" = "$RELEASE" ] || fail "it does not go back: version '$(version_there)'"

# What was changed after it was signed is refused, and so is what another key has signed.
expect_distrust() { # WHAT PATTERN COMMAND...
	local what=$1 pattern=$2
	shift 2
	apt_there "$@"
	grep -qE "$pattern" "$WORK/log" || fail "$what is trusted: $(cat "$WORK/log")"
}
for package in "$repository/pool/$suite"/nccl-ha_99.0_*.deb; do
	cp -a "$package" "$WORK/package"
	printf x | dd of="$package" bs=1 seek=20000 conv=notrunc status=none
	expect_distrust "a package that was changed" 'Hash Sum mismatch' install nccl-ha
	cp -a "$WORK/package" "$package"
done
lists=$repository/dists/$suite
cp -a "$lists" "$WORK/lists"
sed -i 's/^Version: 99.0/Version: 99.1/' "$lists"/main/binary-*/Packages
rm "$lists"/main/binary-*/Packages.gz
rm -rf "$root"/var/lib/apt/lists/*
expect_distrust "a list that was changed" 'Hash Sum mismatch' update
rm -rf "$lists" && cp -a "$WORK/lists" "$lists"
new_key stranger@nccl-ha.invalid
HA_APT_KEY=stranger@nccl-ha.invalid "$maker" "$WORK/newer" "$repository" >"$WORK/log" 2>&1 || fail "apt.sh: $(cat "$WORK/log")"
expect_distrust "another's signature" 'NO_PUBKEY' update
echo "made, signed, installed, upgraded, refused where it must be"
