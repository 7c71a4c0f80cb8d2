#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# An apt repository of packages that are there: apt.sh PACKAGES REPOSITORY. What the repository has already stays in it, so that
# a host can go back to a version before. It is signed with the key that HA_APT_KEY names in the keyring of gpg (GNUPGHOME); a
# repository that nobody signs is not made.
set -euo pipefail
export LC_ALL=C
die() {
	echo "${0##*/}: $*" >&2
	exit 1
}
[ $# -eq 2 ] || die "usage: apt.sh PACKAGES REPOSITORY"
packages=$1 repository=$2
key=${HA_APT_KEY:-}
[ -n "$key" ] || die "HA_APT_KEY is not set: it names the key of gpg that signs the repository"
gpg --batch --list-secret-keys "$key" >/dev/null 2>&1 || die "gpg has no secret key '$key' (HA_APT_KEY)"
compgen -G "$packages/*.deb" >/dev/null || die "there are no packages in $packages"
# Packages belong on the distribution that they were built on.
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-$ID$VERSION_ID}")
architecture=$(dpkg --print-architecture)
umask 022

pool=pool/$suite lists=dists/$suite/main/binary-$architecture
mkdir -p "$repository/$pool" "$repository/$lists"
cp "$packages"/*.deb "$repository/$pool/"
cd "$repository"
apt-ftparchive packages "$pool" >"$lists/Packages"
gzip -9nkf "$lists/Packages"
apt-ftparchive -o "APT::FTPArchive::Release::Origin=nccl-ha" -o "APT::FTPArchive::Release::Label=nccl-ha" \
	-o "APT::FTPArchive::Release::Suite=$suite" -o "APT::FTPArchive::Release::Codename=$suite" \
	-o "APT::FTPArchive::Release::Architectures=$architecture" -o APT::FTPArchive::Release::Components=main \
	release "dists/$suite" >Release.new
# Last of all, and at once: who reads meanwhile has either the old list or the new one.
gpg --batch --yes --local-user "$key" --clearsign --output InRelease.new Release.new
mv Release.new "dists/$suite/Release"
mv InRelease.new "dists/$suite/InRelease"
gpg --batch --yes --armor --output nccl-ha.asc --export "$key"
cat >nccl-ha.sources <<-TEXT
	Types: deb
	URIs: ${HA_APT_URI:-file://$PWD}
	Suites: $suite
	Components: main
	Signed-By: /etc/apt/keyrings/nccl-ha.asc
TEXT
