// Package clidoc makes of a command line, as kong knows it, what a shell and
// man(1) want to know: completion scripts and manual pages. They are made of
// the same model as the help text and cannot contradict it.
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
	flags  []option // of the program itself
}

// Command is a subcommand.
type Command struct {
	Name, Help string

	group     string // heading, empty if it has none
	detail    string
	launches  bool
	flags     []option
	arguments []argument
}

// option is a flag, with a value or without.
type option struct {
	long        string
	short       rune // 0 if it has none
	help        string
	group       string // heading, empty if it has none
	value       string // what stands for its value, empty if it takes none
	choices     []string
	kind        kind
	repeated    bool
	placeholder string // as the help shows it
}

// argument is a positional one.
type argument struct {
	name, summary, help string
	kind                kind
	choices             []string
}

// kind says what can be completed.
type kind uint8

const (
	other kind = iota
	file
	directory
	process
	commandName
)

// kinds are what the placeholders of the help text stand for.
var kinds = map[string]kind{"FILE": file, "PATH": file, "DIR": directory, "PID": process, "PID,...": process, "COMMAND": commandName}

// New takes what it needs of a kong model. Launches reports whether a command
// runs a program that follows "--".
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
				// Arguments have no placeholder, but this tag of their own.
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

// commandNames are the names of the commands.
func (p *Program) commandNames() []string {
	var list []string
	for _, c := range p.Commands {
		list = append(list, c.Name)
	}
	return list
}

// flags returns the options of a node that are not hidden.
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
			o.kind = kinds[f.PlaceHolder]
		}
		list = append(list, o)
	}
	return list
}

// title returns the heading of a group, which may be none.
func title(g *kong.Group) string {
	if g == nil {
		return ""
	}
	return g.Title
}

// choices are the values that a flag or an argument can have, nil if they are
// not to be counted.
func choices(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

// takesValue reports whether something follows the flag.
func (f *option) takesValue() bool { return f.value != "" }

// names are the ways to write the flag.
func (f *option) names() []string {
	if f.short == 0 {
		return []string{"--" + f.long}
	}
	return []string{"-" + string(f.short), "--" + f.long}
}

// brief is the first sentence of a help text, for a line of a menu.
func brief(help string) string {
	sentence, _, _ := strings.Cut(help, ". ")
	sentence, _, _ = strings.Cut(sentence, ": ")
	return strings.TrimSuffix(sentence, ".")
}
