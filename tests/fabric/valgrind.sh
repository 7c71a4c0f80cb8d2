#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the library asks the kernel about memory that is registered is no error of the program's.
. "$(dirname "$0")/lib.sh"

fabric_up --hosts 1 --rails 1
"$SIMVERBS" run "$FABRIC" 0 -- valgrind -q --error-exitcode=9 "$1" >"$WORK/valgrind.out" 2>&1 ||
	fail "valgrind: exit status $?"
