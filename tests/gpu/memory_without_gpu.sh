#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-memory says plainly what is missing where there is no GPU; where there is one, it runs.
out=$("$1" 16)
status=$?
echo "$out"
case $status in
77) echo "$out" | grep -q "^SKIP: .*CUDA.*; this is for a machine with a GPU$" ;;
0) echo "$out" | grep -q "^all bytes are right$" ;;
*) exit 1 ;;
esac
