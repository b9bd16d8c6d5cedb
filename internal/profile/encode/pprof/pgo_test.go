package pprof

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// guided is a program in which run calls mostly one.f and large, which only a profile
// shows. Its lines are numbered from 1.
const guided = `package main

type caller interface{ f(x int) int }

type one struct{ n int }

func (o *one) f(x int) int { return x * o.n }

type two struct{ n int }

func (t *two) f(x int) int { return x + t.n }

func large(x int) int {
	for x > 1000 {
		x = x/3 + x/5 + x/7 + x/11 + x/13
		x = x/3 + x/5 + x/7 + x/11 + x/13
		x = x/3 + x/5 + x/7 + x/11 + x/13
		x = x/3 + x/5 + x/7 + x/11 + x/13
		x = x/3 + x/5 + x/7 + x/11 + x/13
	}
	return x
}

func run(c caller, n int) (x int) {
	for range n {
		x += c.f(x)
		x += large(x)
	}
	return x
}

func main() { println(run(&one{3}, 1000), run(&two{3}, 0)) }
`

// TestGuidesGo checks that Go's compiler inlines the functions that a profile shows to be
// hot. It identifies functions by linker names, and calls by their line offset in the
// function.
func TestGuidesGo(t *testing.T) {
	goTool := testenv.Tool(t, "go")
	dir := t.TempDir()
	source := filepath.Join(dir, "guided.go")
	if err := os.WriteFile(source, []byte(guided), 0o600); err != nil {
		t.Fatal(err)
	}
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cycles", Unit: "count"})
	m := b.Mapping(profile.Mapping{Path: "/bin/guided"})
	frame := func(name string, start, line int) profile.FrameID {
		f := b.Function(profile.Function{Name: name, SystemName: name, File: source, StartLine: start})
		return b.Frame(profile.Frame{Function: f, Mapping: m, Address: uint64(0x1000 + line), Line: line})
	}
	task := b.Task(profile.Task{PID: 1, Comm: "guided"})
	run := func(line int) profile.StackID {
		return b.Push(b.Push(0, frame("main.main", 32, 32)), frame("main.run", 24, line))
	}
	for _, s := range []profile.StackID{
		b.Push(run(26), frame("main.(*one).f", 7, 7)),
		b.Push(run(27), frame("main.large", 13, 15)),
	} {
		b.Add(profile.Sample{Stack: s, Task: task, CPU: -1, Values: []int64{500, 1_000_000}})
	}
	file := writeFile(t, b.Profile(profile.Meta{}, profile.Losses{}))
	compile := func(flags ...string) string {
		args := append([]string{"tool", "compile", "-p", "main", "-m", "-o", filepath.Join(dir, "guided.o")}, flags...)
		text, err := exec.Command(goTool, append(args, source)...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
		}
		return string(text)
	}
	before, after := compile(), compile("-pgoprofile="+file)
	for _, decision := range []string{
		"26:11: PGO devirtualizing interface call c.f to (*one).f",
		"26:11: inlining call to (*one).f",
		"27:13: inlining call to large",
	} {
		if strings.Contains(before, decision) {
			t.Errorf("got %q without a profile:\n%s", decision, before)
		}
		if !strings.Contains(after, decision) {
			t.Errorf("got no %q with the profile:\n%s", decision, after)
		}
	}
}
