#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inccl_header.sh ROOT COMPILER LIBRARY: inccl/inccl.h is C11 and C++17; what it declares, and nothing else, is what the library shows,
# and libibverbs and the C library are all that this needs.
set -eu
root=$1 cc=$2 library=$3
header=$root/include/inccl/inccl.h
same() { [ "$1" = "$2" ] || { printf '%s\n%s\nand\n%s\n' "$3" "$1" "$2"; exit 1; }; }
declared=$(sed 's|^ \*.*||; /^static inline/,/^}/d' "$header" | grep -oE '\binccl_[a-z_]+\(' | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$library" | sed -n 's/.* T \(.*\)@@INCCL_0/\1/p' | sort)
same "$declared" "$exported" "declared and exported:"
same "$(nm -D --defined-only "$library" | grep -cv '@@INCCL_0$')" 1 "other names than the version's own:"
needs=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libc|ld-linux.*|libasan|libubsan|libtsan|libgcc_s)\.so') || true
same "$needs" libibverbs.so.1 "needs:"
flags=(-fsyntax-only -I"$root/include" -Wall -Wextra -Wshadow -Wconversion -Wpedantic -Werror)
"$cc" -std=c11 "${flags[@]}" -x c - <<<'#include "inccl/inccl.h"'
cxx=$(command -v g++ || command -v clang++) || { echo "SKIP: no compiler of C++ is installed"; exit 77; }
"$cxx" -std=c++17 "${flags[@]}" -x c++ - <<<'#include "inccl/inccl.h"'
echo "C11 and C++17; $(wc -w <<<"$exported") functions"
