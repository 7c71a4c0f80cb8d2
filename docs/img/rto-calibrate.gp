# SPDX-License-Identifier: Apache-2.0
# False switches and recovery by HA_NCCL_RTO_MS; rto-calibrate.dat is written by `scripts/rto-calibrate --docs`.
if (!exists("data")) data = "rto-calibrate.dat"
if (!exists("picture")) picture = "rto-calibrate.svg"
if (!exists("profiles")) profiles = system("sed -n '1s/[^0-9]*\\([0-9]*\\).*/\\1/p' ".data) + 0
set terminal svg size 1100,460 font "sans,11" background "white" noenhanced
set output picture
stats data using 1 nooutput
curves = STATS_blocks - profiles
colours = "#9400d3 #009e73 #56b4e9 #e69f00 #d55e00 #0072b2 #000000 #999999"
set multiplot layout 1,3
set logscale x
set xtics (200, 500, 1000, 2000)
set xrange [170:2400]
set grid lc rgb "#dddddd"
set xlabel "HA_NCCL_RTO_MS"
set key below center maxcols 3 samplen 1
set logscale y
set yrange [0.03:100]
set ylabel "% of the pauses taken for a failure"
shown(y) = (y > 0.03 ? y : 0.03)
set title "false switches, by the queue pairs' timeout"
plot 1 lc rgb "#888888" notitle, \
     for [i=0:curves-1] data index i using 1:(shown($2)):(shown($3)):(shown($4)) with yerrorlines pt 7 ps 0.4 lw 1.5 lc rgb word(colours, i+1) title columnheader(1)
set title "false switches, the RTO alone"
plot 1 lc rgb "#888888" notitle, \
     for [i=curves:STATS_blocks-1] data index i using 1:(shown($2)):(shown($3)):(shown($4)) with yerrorlines pt 7 ps 0.4 lw 1.5 lc rgb word(colours, i-curves+1) title columnheader(1)
set title "recovery (dashed: a wedged NIC)"
set yrange [50:5000]
set ytics (50, 100, 200, 500, 1000, 2000, 5000)
set ylabel "ms"
plot for [i=0:curves-1] data index i using 1:5 with linespoints pt 7 ps 0.4 lw 1.5 lc rgb word(colours, i+1) title columnheader(1), \
     for [i=0:curves-1] data index i using 1:6 with lines dt 2 lc rgb word(colours, i+1) notitle
unset multiplot
