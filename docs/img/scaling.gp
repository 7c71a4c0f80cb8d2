# SPDX-License-Identifier: Apache-2.0
# How the plugin scales; scaling.dat is that of scripts/bench-scale, scaling-before.dat the same columns
# from before each connection had a time of its own in the background thread.
set terminal svg size 1080,360 font "sans,11" background "white"
set output "scaling.svg"
set multiplot layout 1,3
set logscale x 2
set xrange [50:1300]
set yrange [0:*]
set xtics (64, 256, 1024)
set grid lc rgb "#dddddd"
set key top left reverse Left samplen 2
set xlabel "connections of the process"
set title "one connection's set-up, µs"
plot "scaling.dat" index 1 using 1:2 with linespoints pt 7 lw 2 lc 1 title "failover on", \
     "" index 0 using 1:2 with linespoints pt 5 lc 2 title "off", \
     "scaling-before.dat" using 1:2 with linespoints pt 9 dt 2 lc 3 title "on, before"
set title "an idle process, % of a core"
plot "scaling.dat" index 1 using 1:5 with linespoints pt 7 lw 2 lc 1 title "failover on", \
     "" index 0 using 1:5 with linespoints pt 5 lc 2 title "off", \
     "scaling-before.dat" using 1:5 with linespoints pt 9 dt 2 lc 3 title "on, before"
set logscale y
set yrange [5:1000]
set title "a port down until all have moved, ms"
plot "scaling.dat" index 1 using 1:7 with linespoints pt 7 lw 2 lc 1 title "median", \
     "" index 1 using 1:8 with linespoints pt 5 lc 2 title "longest", \
     x * 0.2 with lines dt 3 lc rgb "#888888" title "0.2 ms for each"
unset multiplot
