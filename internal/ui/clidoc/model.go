// Package clidoc writes shell completion scripts and manual pages for a command line
// of kong. They come from the same model as the help text, so they cannot contradict
// it.
package clidoc

import (
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// Program is a command line with subcommands.
type Program struct {
	Name, Help string
	Commands   []Command

	detail string
	flags  []option // the program's own flags
}

// Command is a subcommand.
type Command struct {
	Name, Help string

	group     string // heading, "" if none
	detail    string
	launches  bool
	flags     []option
	arguments []argument
}

// option is a flag.
type option struct {
	long        string
	short       rune // 0 if none
	help        string
	group       string // heading, "" if none
	value       string // placeholder for its value, "" if it takes none
	choices     []string
	kind        kind
	repeated    bool
	placeholder string // as in the help text
}

// argument is a positional argument.
type argument struct {
	name, summary, help string
	kind                kind
	choices             []string
}

// kind is the kind of a value, for completion.
type kind uint8

const (
	other kind = iota
	file
	directory
	process
	commandName
	event
)

// EventCompleter is the hidden command that prints the completions of its argument, "=" and
// the beginning of an event's name: one on each line, without characters that have a meaning to
// shells. Names that end with ":", "/" or "_" are not complete.
const EventCompleter = "complete-event"

// kinds maps placeholders of the help text to kinds.
var kinds = map[string]kind{"FILE": file, "PATH": file, "DIR": directory, "PID": process, "PID,...": process, "COMMAND": commandName}

// tagged maps the tags of flags whose placeholder does not say their kind.
var tagged = map[string]kind{"event": event}

// New converts a kong model. launches reports whether a command runs the program
// that follows "--".
func New(app *kong.Application, launches func(*kong.Node) bool) Program {
	p := Program{Name: app.Name, Help: app.Help, detail: app.Detail, flags: flags(app.Node)}
	for _, node := range app.Children {
		if node.Hidden {
			continue
		}
		c := Command{Name: node.Name, Help: node.Help, group: title(node.Group), detail: node.Detail, launches: launches(node)}
		c.flags = append(c.flags, p.flags...)
		c.flags = append(c.flags, flags(node)...)
		for _, arg := range node.Positional {
			c.arguments = append(c.arguments, argument{
				name: arg.Name, summary: arg.Summary(), help: arg.Help,
				// Arguments have no placeholder, so they use a tag
				// of their own.
				kind: kinds[strings.ToUpper(arg.Tag.Get("complete"))], choices: choices(arg),
			})
		}
		p.Commands = append(p.Commands, c)
	}
	for _, c := range p.Commands {
		for i := range c.arguments {
			if c.arguments[i].kind == commandName {
				c.arguments[i].choices = p.commandNames()
			}
		}
	}
	return p
}

// commandNames returns the names of the commands.
func (p *Program) commandNames() []string {
	var list []string
	for _, c := range p.Commands {
		list = append(list, c.Name)
	}
	return list
}

// flags returns the visible flags of a node.
func flags(node *kong.Node) []option {
	var list []option
	for _, f := range node.Flags {
		if f.Hidden {
			continue
		}
		o := option{long: f.Name, short: f.Short, help: f.Help, group: title(f.Group), choices: choices(f.Value), repeated: f.Target.Kind() == reflect.Slice}
		if !f.IsBool() && !f.IsCounter() {
			o.placeholder = f.FormatPlaceHolder()
			o.value = strings.ToLower(strings.TrimSuffix(o.placeholder, ",..."))
			o.kind = max(kinds[f.PlaceHolder], tagged[f.Tag.Get("complete")])
		}
		list = append(list, o)
	}
	return list
}

// title returns the heading of a group, "" if g is nil.
func title(g *kong.Group) string {
	if g == nil {
		return ""
	}
	return g.Title
}

// choices returns the possible values of a flag or an argument, nil if they cannot
// be listed.
func choices(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

// takesValue reports whether the flag takes a value.
func (f *option) takesValue() bool { return f.value != "" }

// names returns the ways to write the flag.
func (f *option) names() []string {
	if f.short == 0 {
		return []string{"--" + f.long}
	}
	return []string{"-" + string(f.short), "--" + f.long}
}

// brief returns the first sentence of a help text, for completion menus.
func brief(help string) string {
	sentence, _, _ := strings.Cut(help, ". ")
	sentence, _, _ = strings.Cut(sentence, ": ")
	return strings.TrimSuffix(sentence, ".")
}
