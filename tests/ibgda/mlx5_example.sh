#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program that was built against rdma-core's libmlx5 runs on a live fabric, with simverbs' in its place.
# mlx5_example.sh SIMVERBS EXAMPLE MLX5_DIR
set -eu
name=mlx5x$$
"$1" up "$name" --hosts 1 --rails 1 >/dev/null
simverbs=$1
trap '"$simverbs" down "$name" >/dev/null' EXIT
LD_LIBRARY_PATH=$3 "$1" run "$name" 0 -- "$2" 3000
