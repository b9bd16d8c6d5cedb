# Completion of tool for bash, written by "tool completion bash".
# shellcheck shell=bash

_tool() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} i
	# bash takes = for a word of its own.
	if [[ $prev == "=" ]]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	elif [[ $cur == "=" ]]; then
		cur=
	fi
	# The name of an event has a colon, which bash also takes for a word of its own.
	local word=$cur before n=$((COMP_CWORD - 1))
	while ((n > 1)) && [[ $word == :* || ${COMP_WORDS[n]} == : ]]; do
		word=${COMP_WORDS[n]}$word
		((n--))
	done
	before=${COMP_WORDS[n]}
	if [[ $before == "=" ]]; then
		before=${COMP_WORDS[n - 1]}
	fi
	COMPREPLY=()
	# What follows -- is another program's command line.
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			if declare -F _command_offset >/dev/null; then
				_command_offset $((i + 1))
			elif ((COMP_CWORD == i + 1)); then
				mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			else
				_tool_files "$cur"
			fi
			return
		fi
	done
	if ((COMP_CWORD == 1)); then
		_tool_words "$cur" measure merge shell --help
		return
	fi
	case ${COMP_WORDS[1]} in
	measure)
		case $before in
		-e | --event)
			_tool_events "$word"
			return
			;;
		esac
		case $prev in
		-p | --pid)
			_tool_processes "$cur"
			return
			;;
		-o | --output)
			_tool_files "$cur"
			return
			;;
		--root)
			_tool_directories "$cur"
			return
			;;
		--stats)
			_tool_words "$cur" text json
			return
			;;
		-F | --rate)
			return
			;;
		esac
		if [[ $cur == -* ]]; then
			_tool_words "$cur" --help --pid --output --root --event --stats --rate --quiet
		fi
		;;
	merge)
		case $prev in
		esac
		if [[ $cur == -* ]]; then
			_tool_words "$cur" --help
		else
			_tool_files "$cur"
		fi
		;;
	shell)
		case $prev in
		esac
		if [[ $cur == -* ]]; then
			_tool_words "$cur" --help
		else
			_tool_words "$cur" bash zsh
		fi
		;;
	esac
}

_tool_words() {
	mapfile -t COMPREPLY < <(compgen -W "${*:2}" -- "$1")
}

_tool_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

_tool_directories() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -d -- "$1")
}

_tool_processes() {
	mapfile -t COMPREPLY < <(cd /proc && compgen -W "$(echo [0-9]*)" -- "$1")
}

_tool_events() {
	mapfile -t COMPREPLY < <(tool complete-event "=$1" 2>/dev/null)
	if [[ ${COMPREPLY[0]-} == *[:/_] ]]; then
		compopt -o nospace 2>/dev/null
	fi
	# What precedes the last colon stays as it is.
	if [[ $COMP_WORDBREAKS == *:* ]]; then
		COMPREPLY=("${COMPREPLY[@]#"${1%"${1##*:}"}"}")
	fi
}

complete -F _tool tool
