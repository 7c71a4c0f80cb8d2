# SPDX-License-Identifier: Apache-2.0
# Throughput of the demonstration over time, with what was broken when. `scripts/demo` draws its own
# run with it; by itself it draws the one whose data lies in demo/, and with
# rails=N also what each of so many rails carried.
if (!exists("data")) data = 'demo'
if (!exists("picture")) picture = 'demo.svg'
if (!exists("size")) size = 4
if (picture[strlen(picture)-2:] eq 'png') {
	set terminal pngcairo size 1100,420 font 'sans,11'
} else {
	set terminal svg size 1100,420 font 'sans,11' background 'white'
}
set output picture
if (!exists("what")) what = sprintf('Ring all-reduce of %d MiB between 2 hosts over 2 rails, every element checked', size)
set title what
set xlabel 'seconds'
if (!exists("ranks")) ranks = 'both'
set ylabel 'GB/s received, '.ranks.' ranks, checking included'
set grid
set yrange [0:*]
load data.'/faults.gp'
set xrange [0:*]
if (exists("rails")) {
	set key outside right center
	plot data.'/throughput.dat' using 1:2 with steps lw 1 lc rgb '#999999' title 'both ranks', \
		for [rail = 0:rails-1] data.'/rails.dat' using 1:(column(2 + rail)) with steps lw 1.5 title sprintf('over rail %d', rail)
} else {
	plot data.'/throughput.dat' using 1:2 with steps lw 1.5 notitle
}
