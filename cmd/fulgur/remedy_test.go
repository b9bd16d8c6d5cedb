package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"fulgur/internal/capture/target"
	"fulgur/internal/message/usage"
)

// Wrapped errors, too, name the flags that help.
func TestRemedy(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", target.ThreadError{TID: 8, PID: 7})
	if got, want := remedy(err), "-L 8"; !strings.Contains(got, want) {
		t.Errorf("remedy of %v = %q, want it to contain %q", err, got, want)
	}
	if got := remedy(usage.Errorf("something else")); got != "" {
		t.Errorf("remedy of another error = %q, want none", got)
	}
}

// Every option has a flag that a command has.
func TestOptionFlags(t *testing.T) {
	parser, err := newParser(subcommands, nil, nil, func() {})
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	err = kong.Visit(parser.Model, func(n kong.Visitable, next kong.Next) error {
		if f, ok := n.(*kong.Flag); ok {
			flags = append(flags, "--"+f.Name, "-"+string(f.Short))
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../internal/message/usage/option.go")
	if err != nil {
		t.Fatal(err)
	}
	options := regexp.MustCompile(`(?m)^\t\w+ +Option = "(.*)"$`).FindAllSubmatch(source, -1)
	if len(options) != len(optionFlags) {
		t.Errorf("got flags for %d options, want %d", len(optionFlags), len(options))
	}
	for _, o := range options {
		if flag := optionFlags[usage.Option(o[1])]; !slices.Contains(flags, flag) {
			t.Errorf("option %s: flag %q is not a flag of any command", o[1], flag)
		}
	}
}
