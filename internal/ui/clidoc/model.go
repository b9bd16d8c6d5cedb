// Package clidoc completes command lines for shells, and writes manual pages. Both come from the same
// model of package kong as the help text, so they cannot contradict it.
package clidoc

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Commands returns the visible commands of a program.
func Commands(app *kong.Application) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(app.Children), func(c *kong.Node) bool { return c.Hidden })
}

// visible returns the flags of a command or program that the help text lists.
func visible(flags []*kong.Flag) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f *kong.Flag) bool { return f.Hidden })
}

// names returns the ways to write a flag.
func names(f *kong.Flag) []string {
	if f.Short == 0 {
		return []string{"--" + f.Name}
	}
	return []string{"-" + string(f.Short), "--" + f.Name}
}

// brief returns the first sentence of a help text without its details, for completion menus.
func brief(help string) string {
	sentence, _, _ := strings.Cut(help, ". ")
	sentence, _, _ = strings.Cut(sentence, ": ")
	if i := strings.LastIndexByte(sentence, '('); i >= 0 && !strings.Contains(sentence[i:], ")") {
		sentence = strings.TrimSpace(sentence[:i]) // what was cut off is in parentheses
	}
	return strings.TrimSuffix(sentence, ".")
}
