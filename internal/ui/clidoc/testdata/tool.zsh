#compdef tool
# Completion of tool for zsh, written by "tool completion zsh".

_tool() {
	local -a subcommands=( # zsh has a commands of its own
		'measure:Measure what runs'
		'merge:Add files up'
		'shell:Choose a shell'
	)
	if ((CURRENT == 2)); then
		_describe -t commands command subcommands
		return
	fi
	# What follows -- is another program's command line.
	local -i dashes=${words[(i)--]}
	if ((dashes < CURRENT)); then
		shift dashes words
		((CURRENT -= dashes))
		_normal
		return
	fi
	shift words
	((CURRENT--))
	case $words[1] in
	measure)
		_arguments -s -S \
			'(-h --help)-h[Show context-sensitive help]' \
			'(-h --help)--help[Show context-sensitive help]' \
			'*-p+[These processes]:pid:_pids' \
			'*--pid=[These processes]:pid:_pids' \
			'(-o --output)-o+[Write to FILE]:file:_files' \
			'(-o --output)--output=[Write to FILE]:file:_files' \
			'(--root)--root=[Look below DIR]:dir:_files -/' \
			'*-e+[This event]:event:_tool_events' \
			'*--event=[This event]:event:_tool_events' \
			'(--stats)--stats=[Sum up as text or json]:form:(text json)' \
			'(-F --rate)-F+[Samples a second]:hz: ' \
			'(-F --rate)--rate=[Samples a second]:hz: ' \
			'(-q --quiet)-q[Say nothing]' \
			'(-q --quiet)--quiet[Say nothing]'
		;;
	merge)
		_arguments -s -S \
			'(-h --help)-h[Show context-sensitive help]' \
			'(-h --help)--help[Show context-sensitive help]' \
			'*:in:_files'
		;;
	shell)
		_arguments -s -S \
			'(-h --help)-h[Show context-sensitive help]' \
			'(-h --help)--help[Show context-sensitive help]' \
			':name:(bash zsh)'
		;;
	esac
}

_tool_events() {
	local -a found=(${(f)"$(tool complete-event "=$PREFIX" 2>/dev/null)"})
	compadd -S '' -- ${(M)found:#*[:/_]}
	compadd -- ${found:#*[:/_]}
}

if [[ $funcstack[1] == _tool ]]; then
	_tool "$@"
else
	compdef _tool tool
fi
