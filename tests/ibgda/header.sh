#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# header.sh ROOT COMPILER: nccl_ha/ibgda.cuh and nccl_ha/ibgda.h are C11 and C++17; the former code for a GPU, where nvcc is.
set -eu
root=$1 cc=$2
header=$root/include/nccl_ha/ibgda.cuh
flags=(-fsyntax-only -I"$root/include" -Wall -Wextra -Wshadow -Wconversion -Werror -Wno-unused-function)
"$cc" -std=c11 "${flags[@]}" -x c "$header"
"$cc" -std=c11 "${flags[@]}" -x c "${header%.cuh}.h"
cxx=$(command -v g++ || command -v clang++) || { echo "SKIP: no compiler of C++ is installed"; exit 77; }
"$cxx" -std=c++17 "${flags[@]}" -x c++ "${header%.cuh}.h"
for backup in 0 1; do
	"$cxx" -std=c++17 "${flags[@]}" -DHA_IBGDA_BACKUP=$backup -x c++ "$header"
done
echo "C11 and C++17"
if command -v nvcc >/dev/null; then
	out=$(mktemp)
	trap 'rm -f "$out"' EXIT
	nvcc -cubin -arch=sm_90 -std=c++17 -I"$root/include" -o "$out" "$root/tests/ibgda/post.cu" && echo "a GPU's"
fi
