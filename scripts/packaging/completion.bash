# Completion of commands and options, as --help of the program has them.
_nccl_ha_complete() {
	local help=("$1") words
	# The options of a command are those of the command.
	if [ "$COMP_CWORD" -gt 1 ] && [[ ${COMP_WORDS[1]} =~ ^[a-z]+$ ]]; then help+=("${COMP_WORDS[1]}"); fi
	words=$("${help[@]}" --help 2>/dev/null | grep -oE '^  [a-z][a-z-]+|--[a-z][a-z_-]+=?')
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$2")
}
complete -o default -F _nccl_ha_complete nccl-ha nccl-ha-agent nccl-ha-ctrld nccl-ha-switchd nccl-net-perf nccl-net-check simverbs
