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
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
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

// A command that reports a loss has the flags that its remedy names.
func TestRemedyFlags(t *testing.T) {
	measuring := []string{"profile", "top", "offcpu", "runq", "faults", "blockio", "record", "count", "latency", "locks", "alloc", "softirq", "agent"}
	// Other commands cannot have these losses: limits of hits, stacks with times, a target set, and what is tracked until it ends.
	only := map[profile.Loss][]string{
		profile.LossLimited:    {"record", "count", "latency", "locks"},
		profile.LossCrowded:    {"record", "profile"},
		profile.LossUntracked:  measuring[:len(measuring)-1],
		profile.LossUnfollowed: {"profile", "offcpu", "runq", "blockio", "record", "latency", "locks", "alloc"},
	}
	named := 0
	for _, command := range measuring {
		parser, err := newParser(subcommands, nil, nil, func() {})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == command })
		if i < 0 {
			t.Fatalf("no command %s", command)
		}
		var flags []string
		for _, f := range parser.Model.Children[i].Flags {
			flags = append(flags, "--"+f.Name, "-"+string(f.Short))
		}
		for cause := range profile.Loss(profile.NumLosses) {
			if list := only[cause]; list != nil && !slices.Contains(list, command) {
				continue
			}
			for _, o := range describe.RemedyOptions(cause) {
				named++
				if flag := optionFlags[o]; !slices.Contains(flags, flag) {
					t.Errorf("fulgur %s reports the loss %v, whose remedy is %s, and has no such flag", command, cause, flag)
				}
			}
		}
	}
	if named < 50 {
		t.Errorf("got only %d flags in remedies", named)
	}
}
