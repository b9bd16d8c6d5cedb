package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"fulgur/internal/message/plain"
)

// otherCommands says what replaces commands of other profilers.
var otherCommands = map[string]string{
	"annotate":   "fulgur view FILE shows a profile with source and assembly",
	"dump":       "fulgur profile --wall -p PID 1 shows where the threads of a process are during a second",
	"flamegraph": "fulgur profile -o flame.html 10 measures, and fulgur convert -o flame.html FILE draws a profile",
	"import":     "fulgur view FILE shows a profile, and fulgur convert -o OUT FILE converts it",
	"load":       "fulgur view FILE shows a profile",
	"script":     "fulgur convert -o stacks.folded perf.data writes stacks as text",
	"stat":       "fulgur count -e EVENT counts an event by stack",
	"trace":      "fulgur record -e EVENT records events with their fields and stacks, and fulgur count -e EVENT counts them",
}

// commandHint returns what to do instead if the first argument is not a command, "" if that is unknown.
func commandHint(word string) string {
	if hint := otherCommands[word]; hint != "" {
		return hint
	}
	if strings.Trim(word, "0123456789") == "" {
		return "to profile a process, give fulgur profile -p " + word
	}
	if info, err := os.Stat(word); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 == 0 {
		return "to show a profile, give fulgur view " + plain.Word(word)
	}
	if _, err := exec.LookPath(word); err == nil || strings.Contains(word, "/") {
		return "to profile a command, give fulgur profile -- " + plain.Word(word)
	}
	return ""
}

// firstHint says that a command comes before the flags, if profile has this flag; otherwise "".
func firstHint(c *kong.Context, flag string) string {
	for _, command := range c.Model.Children {
		if command.Name == "profile" && hasFlag(command, flag) {
			return "a command comes first, as in " + plain.Command(append([]string{"fulgur", "profile"}, c.Args...))
		}
	}
	return ""
}

// hasFlag reports whether a command has a flag, which begins with one or two hyphens.
func hasFlag(command *kong.Node, flag string) bool {
	return slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool {
		return flag == "--"+f.Name || f.Short != 0 && flag == "-"+string(f.Short)
	})
}

// flagHint returns what replaces a flag of other profilers in a command that measures, "" if nothing
// does.
func flagHint(command *kong.Node, flag string) string {
	if command.Group == nil || command.Group.Key != measureGroup {
		return ""
	}
	hasDuration := slices.ContainsFunc(command.Positional, func(a *kong.Positional) bool { return a.Name == "duration" })
	if hasDuration && flag == "--duration" {
		return fmt.Sprintf("the duration is an argument, as in fulgur %s 10", command.Name)
	}
	if !hasFlag(command, "--max-depth") {
		return ""
	}
	switch flag {
	case "-g", "--call-graph":
		return "stacks are always recorded; --unwind selects how they are found"
	case "-n", "--native":
		return "native functions are always shown, between those of Python, JavaScript, Java and Ruby"
	case "--nonblocking":
		return "sampling never stops the program"
	case "--perf-map":
		return "perf maps and jitdump files of programs are always read"
	}
	return ""
}
