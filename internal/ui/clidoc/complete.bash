# Completion of fulgur for bash, written by "fulgur completion bash".
# shellcheck shell=bash

_fulgur() {
	local i word cur value kind prefix='' breaks=${COMP_WORDBREAKS//[^:=]/} words=() lines=()
	COMPREPLY=()
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $word == -- ]] && ((i < COMP_CWORD)); then
			_fulgur_launched "$((i + 1))"
			return
		fi
		# bash takes : and = for words of their own.
		if ((i > 1)) && [[ $word == [:=]* || -z ${COMP_WORDS[i - 1]//[:=]/} ]]; then
			words[-1]+=$word
		else
			words+=("$word")
		fi
	done
	cur=${words[-1]}
	mapfile -t lines < <("${COMP_WORDS[0]/#\~\//$HOME/}" complete -- "${words[@]}" 2>/dev/null)
	kind=${lines[0]%%$'\t'*} value=${lines[0]#*$'\t'}
	case $kind in
	file | directory)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -A "$kind" -P "${cur%"$value"}" -- "$value")
		;;
	*)
		COMPREPLY=("${lines[@]:1}")
		COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
		if [[ ${COMPREPLY[0]-} == *[:/_] ]]; then
			compopt -o nospace 2>/dev/null
		fi
		;;
	esac
	# What precedes the last : or = stays as it is.
	if [[ $breaks ]]; then
		prefix=${cur%"${cur##*["$breaks"]}"}
	fi
	COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}

# Completes another program's command line, which follows --.
_fulgur_launched() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif ((COMP_CWORD == $1)); then
		mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
	else
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
	fi
}

complete -F _fulgur fulgur
