# SPDX-License-Identifier: Apache-2.0
# Connections that maxComms promises and that could be opened, with paths in reserve; resource-sweep.dat is
# written by `scripts/resource-sweep --docs`.
if (!exists("data")) data = "resource-sweep.dat"
if (!exists("picture")) picture = "resource-sweep.svg"
set terminal svg size 720,420 font "sans,11" background "white"
set output picture
set grid lc rgb "#dddddd"
set key outside right center Left reverse samplen 1
set xlabel "connections promised by a device (maxComms × channels)"
set ylabel "connections opened on it"
set xrange [0:*]
set yrange [0:*]
stats data using 1 nooutput
plot x lc rgb "#888888" title "as many as promised", \
     for [i=0:STATS_blocks-1] data index i using 1:2 with points pt 4+2*i ps 1.6-0.3*i lw 1.5 title columnheader(1)
