# SPDX-License-Identifier: Apache-2.0
# Bus bandwidth of NCCL over the four transports; gpu-bench.dat is a results.dat of scripts/gpu-bench.
set terminal svg size 1080,360 font "sans,11" background "white"
set output "gpu-bench.svg"
set multiplot layout 1,3
set logscale x 2
set xrange [1024:268435456]
set yrange [0:*]
set xtics ("1 KiB" 1024, "64 KiB" 65536, "1 MiB" 1048576, "16 MiB" 16777216, "256 MiB" 268435456) rotate by -30
set grid lc rgb "#dddddd"
set key top left reverse Left samplen 2
set ylabel "bus bandwidth, GB/s"
names = "all_reduce_perf sendrecv_perf alltoall_perf"
do for [op = 0:2] {
	set title word(names, op + 1) noenhanced
	plot "gpu-bench.dat" index op using 1:2 with linespoints pt 7 ps 0.4 lw 2 title columnheader(2), \
	     "" index op using 1:4 with linespoints pt 5 ps 0.4 title columnheader(4), \
	     "" index op using 1:5 with linespoints pt 9 ps 0.4 title columnheader(5)
}
unset multiplot
