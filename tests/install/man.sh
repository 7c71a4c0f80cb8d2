#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every manual page is right for both programs that format them, and every tool has one that names all its
# options.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need man man-db
need mandoc mandoc

pages=("$BUILD"/docs/man/*.[17].gz)
[ ${#pages[@]} -ge 4 ] || fail "pages: ${pages[*]}"
for page in "${pages[@]}"; do
	name=$(basename "$page" .gz)
	gzip -dc "$page" >"$WORK/$name" || fail "$page"
	warnings=$(MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$WORK/$name" 2>&1 >/dev/null)
	[ -z "$warnings" ] || fail "man: $name: $warnings"
	warnings=$(mandoc -T lint -W warning "$WORK/$name") || fail "mandoc: $warnings"
	LC_ALL=C.UTF-8 man -l -P cat "$WORK/$name" 2>/dev/null | col -bx >"$WORK/$name.txt"
	[ -s "$WORK/$name.txt" ] || fail "$name is empty"
done

for page in "$SOURCE"/docs/man/*.1; do
	name=$(basename "$page" .1)
	tool=$BUILD/bin/$name
	[ -x "$tool" ] || fail "there is no $name"
	n=0
	for option in $("$tool" --help | grep -oE -- '(^|[ ,[])--[a-z][a-z_-]+' | grep -oE -- '--.*' | sort -u); do
		case $option in --help | --usage | --version) continue ;; esac
		n=$((n + 1))
		grep -qF -- "$option" "$WORK/$name.1.txt" || fail "$name(1) does not know $option"
	done
	echo "$name: $n options"
done

for name in nccl-ha-agent nccl-ha-ctrld nccl-ha-switchd nccl-net-perf nccl-net-check simverbs; do
	[ -s "$WORK/$name.1.txt" ] || fail "no page of $name"
done
echo "${#pages[@]} pages"
