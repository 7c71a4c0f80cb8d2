# Options of the program, as its --help has them (package bash-completion).
complete -F _longopt nccl-net-perf nccl-net-check simverbs
