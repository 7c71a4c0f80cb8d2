# SPDX-License-Identifier: Apache-2.0
# Bus bandwidth of NCCL over the transports, and the time of NCCL's own IB transport over nccl-ha's;
# gpu-bench.dat is written by `scripts/gpu-bench --from FILE --docs PAGE`.
set terminal svg size 1080,640 font "sans,11" background "white"
set output "gpu-bench.svg"
set datafile missing "?"
# Data of before ratios were kept have bandwidths only.
ratios = strstrt(system("head -n 2 gpu-bench.dat"), "ib/plugin") > 0
set multiplot layout (ratios ? 2 : 1),2
set logscale x 2
set xtics ("8 B" 8, "1 KiB" 1024, "64 KiB" 65536, "1 MiB" 1048576, "16 MiB" 16777216, "256 MiB" 268435456) rotate by -30
set grid lc rgb "#dddddd"
set key top left reverse Left samplen 2
names = "all_reduce_perf sendrecv_perf"
set xrange [1024:268435456]
set yrange [0:*]
set ylabel "bus bandwidth, GB/s"
do for [op = 0:1] {
	set title word(names, op + 1) noenhanced
	plot "gpu-bench.dat" index op using 1:"nccl-ha" with linespoints pt 7 ps 0.4 lw 2 title "nccl-ha", \
	     "" index op using 1:"NCCL IB" with linespoints pt 5 ps 0.4 title "NCCL IB", \
	     "" index op using 1:"NCCL sockets" with linespoints pt 9 ps 0.4 title "NCCL sockets"
}
set xrange [4:536870912]
set yrange [0.8:1.25]
set ylabel "time of the other / nccl-ha"
if (ratios) do for [op = 0:1] {
	set title word(names, op + 1) noenhanced
	plot 1 lc rgb "#888888" notitle, \
	     "gpu-bench.dat" index op using 1:"ib/plugin":"ib/plugin low":"ib/plugin high" with yerrorlines pt 5 ps 0.4 title "NCCL IB", \
	     "" index op using 1:"haoff/plugin" with linespoints pt 7 ps 0.4 title "HA off"
}
unset multiplot
