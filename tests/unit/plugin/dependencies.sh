#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# dependencies.sh PLUGIN TABLE...: the plugin loads wherever NCCL's own IB transport does, which asks
# for symbols of version IBVERBS_1.1, and shows NCCL's process these tables (NetPlugin_v8, GinPlugin_v11, ...) and nothing else.
set -u
plugin=$1
shift
status=0

complain() {
	echo "FAILED: $*" >&2
	status=1
}

# Libraries: libibverbs and libc, and the linker's own.
needed=$(readelf -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || complain "cannot read what $plugin needs"
for library in $needed; do
	case $library in
	libibverbs.so.1 | libc.so.6 | ld-linux*) ;;
	*) complain "the plugin needs $library" ;;
	esac
done

# Symbol versions: a newer one, and an older library refuses the plugin without a word (newer_verbs.h looks
# those up); private ones are never ours.
versions=$(readelf --dyn-syms -W "$plugin" | grep -oE '@IBVERBS_[A-Z0-9_.]+' | sort -u)
[ -n "$versions" ] || complain "$plugin uses no verbs"
for version in $versions; do
	minor=${version#@IBVERBS_1.}
	[[ $minor =~ ^[0-9]+$ && $minor -le 1 ]] || complain "the plugin needs ${version#@}"
done

# Exports.
exported=$(readelf --dyn-syms -W "$plugin" |
	awk '$7 != "UND" && $5 != "LOCAL" && $8 != "" && $1 ~ /^[0-9]+:$/ { print $8 }' | sort)
expected=$(printf 'nccl%s\n' "$@" | sort)
[ "$exported" = "$expected" ] || complain "exported: ${exported//$'\n'/ }; expected: ${expected//$'\n'/ }"

# NCCL unloads plugins while our thread may be running.
readelf -d "$plugin" | grep -q NODELETE || complain "the plugin is not linked -z nodelete"

exit $status
