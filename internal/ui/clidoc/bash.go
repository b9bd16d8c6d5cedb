package clidoc

import (
	"fmt"
	"io"
	"strings"
)

// WriteBash writes a completion script for bash.
func (p *Program) WriteBash(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# Completion of %[1]s for bash, written by "%[1]s completion bash".
# shellcheck shell=bash

_%[1]s() {
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
				_%[1]s_files "$cur"
			fi
			return
		fi
	done
	if ((COMP_CWORD == 1)); then
		_%[1]s_words "$cur" %[2]s
		return
	fi
	case ${COMP_WORDS[1]} in
`, p.Name, bashWords(append(p.commandNames(), names(p.flags)...)))
	for i := range p.Commands {
		p.bashCommand(&b, &p.Commands[i])
	}
	fmt.Fprintf(&b, `	esac
}

_%[1]s_words() {
	mapfile -t COMPREPLY < <(compgen -W "${*:2}" -- "$1")
}

_%[1]s_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

_%[1]s_directories() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -d -- "$1")
}

_%[1]s_processes() {
	mapfile -t COMPREPLY < <(cd /proc && compgen -W "$(echo [0-9]*)" -- "$1")
}

_%[1]s_events() {
	mapfile -t COMPREPLY < <(%[1]s %[2]s "=$1" 2>/dev/null)
	if [[ ${COMPREPLY[0]-} == *[:/_] ]]; then
		compopt -o nospace 2>/dev/null
	fi
	# What precedes the last colon stays as it is.
	if [[ $COMP_WORDBREAKS == *:* ]]; then
		COMPREPLY=("${COMPREPLY[@]#"${1%%"${1##*:}"}"}")
	fi
}

complete -F _%[1]s %[1]s
`, p.Name, EventCompleter)
	_, err := io.WriteString(w, b.String())
	return err
}

// bashCommand writes the case of a command: the values of its flags, then its flags
// and arguments.
func (p *Program) bashCommand(b *strings.Builder, c *Command) {
	fmt.Fprintf(b, "\t%s)\n", c.Name)
	p.bashEvents(b, c)
	fmt.Fprint(b, "\t\tcase $prev in\n")
	var free []string // flags whose values cannot be completed
	for i := range c.flags {
		f := &c.flags[i]
		complete := p.bashValue(f.kind, f.choices)
		switch {
		case !f.takesValue(), f.kind == event:
		case complete == "":
			free = append(free, f.names()...)
		default:
			fmt.Fprintf(b, "\t\t%s)\n\t\t\t%s\n\t\t\treturn\n\t\t\t;;\n", strings.Join(f.names(), " | "), complete)
		}
	}
	if len(free) > 0 {
		fmt.Fprintf(b, "\t\t%s)\n\t\t\treturn\n\t\t\t;;\n", strings.Join(free, " | "))
	}
	fmt.Fprint(b, "\t\tesac\n\t\tif [[ $cur == -* ]]; then\n")
	fmt.Fprintf(b, "\t\t\t_%s_words \"$cur\" %s\n", p.Name, bashWords(names(c.flags)))
	for _, a := range c.arguments {
		if complete := p.bashValue(a.kind, a.choices); complete != "" {
			fmt.Fprintf(b, "\t\telse\n\t\t\t%s\n", complete)
			break
		}
	}
	fmt.Fprint(b, "\t\tfi\n\t\t;;\n")
}

// bashEvents writes the case of the flags whose values are names of events.
func (p *Program) bashEvents(b *strings.Builder, c *Command) {
	var flags []string
	for i := range c.flags {
		if f := &c.flags[i]; f.kind == event {
			flags = append(flags, f.names()...)
		}
	}
	if len(flags) > 0 {
		fmt.Fprintf(b, "\t\tcase $before in\n\t\t%s)\n\t\t\t_%s_events \"$word\"\n\t\t\treturn\n\t\t\t;;\n\t\tesac\n", strings.Join(flags, " | "), p.Name)
	}
}

// bashValue returns the shell command that completes a value, "" if there is none.
func (p *Program) bashValue(k kind, choices []string) string {
	call, ok := map[kind]string{file: "files", directory: "directories", process: "processes"}[k]
	switch {
	case len(choices) > 0:
		return fmt.Sprintf("_%s_words \"$cur\" %s", p.Name, bashWords(choices))
	case ok:
		return fmt.Sprintf("_%s_%s \"$cur\"", p.Name, call)
	}
	return ""
}

// bashWords joins words for a shell. No word needs quoting.
func bashWords(words []string) string { return strings.Join(words, " ") }

// names returns the long names of flags.
func names(flags []option) []string {
	var list []string
	for _, f := range flags {
		list = append(list, "--"+f.long)
	}
	return list
}
