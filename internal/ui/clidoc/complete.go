package clidoc

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completer is the hidden command that the scripts of [Script] run. The command line to complete follows
// "--"; see [Complete].
const Completer = "complete"

// Candidate is a possible word of a command line. Words that end with ":", "/" or "_" are not complete.
type Candidate struct {
	Word  string
	About string // a short description, "" if none
}

// Sources find the candidates for values that begin with a string, by kind of value: [CommandName], "event"
// and "process". The kind is in the tag "complete" of a flag or an argument, or follows from its
// placeholder.
type Sources map[string]func(beginning string) []Candidate

// CommandName is the kind of value that is the name of a command.
const CommandName = "command"

// The kinds of values that the shell itself completes.
const (
	file      = "file"
	directory = "directory"
)

// kinds maps placeholders of the help text to kinds of values.
var kinds = map[string]string{"FILE": file, "PATH": file, "DIR": directory, "PID,...": "process"}

// Complete writes the candidates for the last of words, a command line without the program's name. The
// first line is "word", or "file" or "directory", a tab, and the beginning of the path that the shell completes.
// The other lines are candidates, each with a tab and a description if it has one.
func Complete(w io.Writer, app *kong.Application, words []string, sources Sources) error {
	kind, word, list := complete(app, words, sources)
	if _, err := fmt.Fprintf(w, "%s\t%s\n", cmp.Or(kind, "word"), word); err != nil {
		return err
	}
	for _, c := range list {
		line := c.Word
		if c.About != "" {
			line += "\t" + c.About
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// complete returns what the last of words can become: a path of a kind, with a beginning, or one of the
// candidates.
func complete(app *kong.Application, words []string, sources Sources) (kind, beginning string, list []Candidate) {
	before, word := words[:len(words)-1], words[len(words)-1]
	if len(before) == 0 {
		return "", "", slices.Concat(matching(sources[CommandName](word), "", word), options(app.Flags, nil, word))
	}
	i := slices.IndexFunc(app.Children, func(c *kong.Node) bool { return c.Name == before[0] })
	if i < 0 {
		return "", "", nil
	}
	command := app.Children[i]
	flags := slices.Concat(app.Flags, command.Flags)
	line := read(flags, before[1:])
	if line.pending != nil {
		return values(line.pending.Value, "", word, sources)
	}
	if strings.HasPrefix(word, "-") {
		if found, value, attached := split(flags, word); attached {
			return values(found[len(found)-1].Value, strings.TrimSuffix(word, value), value, sources)
		}
		return "", "", options(flags, line.given, word)
	}
	if n := min(line.arguments, len(command.Positional)-1); n >= 0 && (n == line.arguments || command.Positional[n].IsCumulative()) {
		return values(command.Positional[n], "", word, sources)
	}
	return "", "", nil
}

// options returns the flags that begin with word, except those that are already given and cannot be repeated.
func options(flags, given []*kong.Flag, word string) (list []Candidate) {
	if word == "" {
		return nil // they would hide what else can follow
	}
	for _, f := range visible(flags) {
		if slices.Contains(given, f) && f.Target.Kind() != reflect.Slice {
			continue
		}
		for _, name := range names(f) {
			list = append(list, Candidate{name, brief(f.Help)})
		}
	}
	return matching(list, "", word)
}

// values returns what word, the beginning of the value of a flag or argument, can become; see complete. In
// the command line, before precedes word without a space, such as "--output=".
func values(v *kong.Value, before, word string, sources Sources) (kind, beginning string, list []Candidate) {
	if v.Enum != "" {
		for _, choice := range v.EnumSlice() {
			list = append(list, Candidate{Word: choice})
		}
		return "", "", matching(list, before, word)
	}
	placeholder := ""
	if v.Flag != nil {
		placeholder = v.Flag.PlaceHolder
	}
	kind = cmp.Or(v.Tag.Get("complete"), kinds[placeholder])
	if kind == file || kind == directory {
		return kind, word, nil
	}
	if find := sources[kind]; find != nil {
		if strings.HasSuffix(placeholder, ",...") {
			i := strings.LastIndexByte(word, ',') + 1
			before, word = before+word[:i], word[i:]
		}
		list = matching(find(word), before, word)
	}
	return "", "", list
}

// matching returns the candidates that begin with word, each with before in front of it.
func matching(list []Candidate, before, word string) (match []Candidate) {
	for _, c := range list {
		if c.Word != "" && strings.HasPrefix(c.Word, word) {
			match = append(match, Candidate{before + c.Word, c.About})
		}
	}
	return match
}

// commandLine has the flags and the number of arguments in a part of a command line.
type commandLine struct {
	given     []*kong.Flag
	pending   *kong.Flag // its value is the next word; nil if none
	arguments int
}

// read parses the words between a command and the word to complete.
func read(flags []*kong.Flag, words []string) (line commandLine) {
	for _, word := range words {
		switch {
		case line.pending != nil:
			line.pending = nil
		case len(word) < 2 || word[0] != '-': // "-" is a file
			line.arguments++
		default:
			found, _, attached := split(flags, word)
			line.given = append(line.given, found...)
			if n := len(found); n > 0 && !found[n-1].IsBool() && !attached {
				line.pending = found[n-1]
			}
		}
	}
	return line
}

// Pending returns the last flag in words, as written there, if its value is missing, else "". Words follow a
// command with these flags.
func Pending(flags []*kong.Flag, words []string) string {
	f := read(flags, words).pending
	switch {
	case f == nil:
		return ""
	case strings.HasPrefix(words[len(words)-1], "--"):
		return words[len(words)-1]
	}
	return "-" + string(f.Short)
}

// split returns the flags in a word, and the value that follows the last of them in the same word. attached
// reports whether there is one. The first unknown flag ends the list.
func split(flags []*kong.Flag, word string) (found []*kong.Flag, value string, attached bool) {
	if name, ok := strings.CutPrefix(word, "--"); ok {
		name, value, attached = strings.Cut(name, "=")
		for _, f := range flags {
			if f.Name == name || slices.Contains(f.Aliases, name) {
				return []*kong.Flag{f}, value, attached
			}
		}
		return nil, "", false
	}
	for i, letter := range word[1:] {
		n := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Short == letter })
		if n < 0 {
			break
		}
		found = append(found, flags[n])
		if rest := word[1+i+len(string(letter)):]; !flags[n].IsBool() {
			return found, rest, rest != ""
		}
	}
	return found, "", false
}
