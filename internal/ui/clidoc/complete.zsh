#compdef fulgur
# Completion of fulgur for zsh, written by "fulgur completion zsh".

_fulgur() {
	# What follows -- is another program's command line.
	local -i dashes=${words[(i)--]}
	if ((dashes < CURRENT)); then
		shift dashes words
		((CURRENT -= dashes))
		_normal
		return
	fi
	local -a lines=(${(f)"$(${${(Q)words[1]}/#\~\//$HOME/} complete -- "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)"})
	local kind=${lines[1]%%$'\t'*} value=${lines[1]#*$'\t'}
	case $kind in
	file | directory)
		compset -p $((${#PREFIX} - ${#value}))
		_files ${${kind:#file}:+-/}
		return
		;;
	esac
	shift lines
	# Words that are not complete, such as the beginning of an event's name.
	compadd -S '' -- ${(M)lines:#*[:/_]}
	lines=(${${lines:#*[:/_]}//:/\\:})
	lines=(${lines/$'\t'/:})
	_describe -t words word lines
}

if [[ $funcstack[1] == _fulgur ]]; then
	_fulgur "$@"
else
	compdef _fulgur fulgur
fi
