#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# symbols.sh TOOL LIBRARY SYSTEM-LIBRARY: our libibverbs.so.1 has every name that the system's has,
# under the same version, except those of before 2007.
lib=$2
system=$3
names() {
	readelf --dyn-syms -W "$1" | awk '$7 != "UND" && $8 ~ /@@/ { print $8 }' | sort
}
missing=$(comm -13 <(names "$lib") <(names "$system"))
[ -z "$missing" ] || { echo "missing:"; echo "$missing"; exit 1; }
# And it needs nothing but libc (and the sanitizer's run-time where that is built in).
needed=$(readelf -d "$lib" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
	grep -Ev '^(libc\.so\.6|ld-linux.*|lib(asan|ubsan|tsan|gcc_s|m)\.so.*)$')
[ -z "$needed" ] || { echo "needs: $needed"; exit 1; }
names "$system" | wc -l
