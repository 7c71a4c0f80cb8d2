# SPDX-License-Identifier: Apache-2.0
# What high availability and end-to-end completion cost by message size; bench.dat is written by
# `scripts/bench --docs`.
set terminal svg size 900,360 font "sans,11" background "white"
set output "bench.svg"
set logscale x 2
set logscale y 2
set xrange [4:2097152]
set xtics ("8 B" 8, "4 KiB" 4096, "64 KiB" 65536, "512 KiB" 524288)
set grid lc rgb "#dddddd"
set key outside right center Left reverse samplen 2
set ylabel "time of the other / as shipped"
stats "bench.dat" using 1 nooutput
plot 1 lc rgb "#888888" notitle, \
     for [i=0:STATS_blocks-1] "bench.dat" index i using ($1*(1+0.08*i)):2:3:4 with yerrorlines pt 7 ps 0.6 title columnheader(1)
