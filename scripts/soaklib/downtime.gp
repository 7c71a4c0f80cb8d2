# SPDX-License-Identifier: Apache-2.0
# Hours in which the job was down so far, by day of the trace. -e "data='FOLDER'"
stats data.'/downtime.dat' using 1 nooutput
set terminal pngcairo size 900,500 font 'sans,11'
set output data.'/downtime.png'
set title 'Model: time that one job on the whole cluster is down'
set xlabel 'day of the trace'
set ylabel 'hours down so far'
set key left top
set grid
set logscale y
set yrange [1e-6:*]
plot for [i=0:STATS_blocks-1] data.'/downtime.dat' index i using 1:($2 > 0 ? $2 : 1e-6) with lines lw 2 title columnheader(1)
