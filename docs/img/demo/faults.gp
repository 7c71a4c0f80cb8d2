set object rectangle from 2.515, graph 0 to 5.518, graph 1 fillcolor rgb '#d62728' fillstyle solid 0.12 noborder behind
set label 'cut 0' at 2.515, graph 0.95 offset 0.5,0 textcolor rgb '#d62728'
set object rectangle from 8.560, graph 0 to 11.508, graph 1 fillcolor rgb '#d62728' fillstyle solid 0.12 noborder behind
set label 'cut 1' at 8.560, graph 0.95 offset 0.5,0 textcolor rgb '#d62728'
