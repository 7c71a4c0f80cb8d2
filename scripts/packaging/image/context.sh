#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The folder that the installer's image is built from, of what was built in BUILD: context.sh BUILD CONTEXT. What it installs are the
# wheel's programs, which need no more of where they run than a C library and libibverbs; without Python's part and without the
# simulated fabric.
set -euo pipefail
export LC_ALL=C
[ $# -eq 2 ] || { echo "usage: context.sh BUILD CONTEXT" >&2; exit 2; }
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")") build=$1 context=$2
# shellcheck source=scripts/lib.sh
source "$here/../../lib.sh"
umask 022

rm -rf "$context"
mkdir -p "$context"
cp "$here/Dockerfile" "$here/nccl-ha-install" "$context/"
"$(packager_python)" "$here/../wheel/make.py" "$build" "$context"
"$(packager_python)" -m zipfile -e "$context"/nccl_ha-*.whl "$context/wheel"
mv "$context/wheel/nccl_ha" "$context/nccl-ha"
mv "$context"/wheel/*.dist-info/{LICENSE,copyright} "$context/nccl-ha/"
cd "$context/nccl-ha"
rm -rf ../wheel ../*.whl ./*.py bin/simverbs
find . -path '*/nccl-ha/simverbs' -prune -exec rm -rf {} +
find . -type d -empty -delete
find bin lib* -type f -exec chmod 755 {} +
ln -s "$(find lib* -name libnccl-net-ha.so)" libnccl-net-ha.so

# Two builds of one release are not taken for each other.
find . -type f ! -name VERSION ! -name SHA256SUMS | sort | xargs sha256sum >SHA256SUMS
release=$(bin/nccl-ha --version)
echo "${release##* }-$(sha256sum SHA256SUMS | cut -c 1-12)" >VERSION
