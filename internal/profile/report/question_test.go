package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/timeline/timelinetest"
)

// stacksOf returns a profile of folded stacks, one function a letter, with one sample each for every
// occurrence.
func stacksOf(stacks []string) *profile.Profile {
	b := profile.NewBuilder(counted)
	for _, stack := range stacks {
		at := profile.StackID(0)
		for i, name := range strings.Split(stack, "") {
			at = b.Push(at, b.Frame(profile.Frame{
				Function: b.Function(profile.Function{Name: name, SystemName: name, File: "f.c"}), Mapping: b.Mapping(profile.Mapping{Path: "/bin/app"}),
				Address: uint64(i), Line: i + 1,
			}))
		}
		b.Add(profile.Sample{Stack: at, Task: b.Task(profile.Task{PID: 1, Comm: "app"}), CPU: -1, Values: []int64{1}})
	}
	return b.Profile(profile.Meta{}, profile.Losses{})
}

// ask answers a question with all rows.
func ask(t *testing.T, p *profile.Profile, name, of string) *Answer {
	t.Helper()
	q, ok := FindQuestion(name)
	if !ok {
		t.Fatalf("no question %s", name)
	}
	a, err := Ask(p, q, Choice{Rows: 1000, Of: of})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// amounts returns the amounts of rows by a key.
func amounts(a *Answer, key func(Row) string) map[string]int64 {
	sums := map[string]int64{}
	for _, r := range a.Rows {
		sums[key(r)] += r.Amount
	}
	return sums
}

func functionName(r Row) string { return r.Function }

// Answers about random stacks, most of them recursive, are those that a search in the text of the stacks gives.
func TestAsk(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	for range 50 {
		var stacks []string
		for range 1 + r.IntN(20) {
			stack := ""
			for range 1 + r.IntN(6) {
				stack += string(rune('a' + r.IntN(4)))
			}
			stacks = append(stacks, stack)
		}
		p := stacksOf(stacks)
		callers, callees, paths, lines := map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
		with := int64(0)
		for _, stack := range stacks {
			if !strings.Contains(stack, "b") {
				continue
			}
			with++
			paths[stack]++
			for name, edge := range map[string]string{"a": "ab", "b": "bb", "c": "cb", "d": "db"} {
				if strings.Contains(stack, edge) {
					callers[name]++
				}
			}
			for name, edge := range map[string]string{"a": "ba", "b": "bb", "c": "bc", "d": "bd"} {
				if strings.Contains(stack, edge) {
					callees[name]++
				}
			}
			if strings.HasPrefix(stack, "b") {
				callers[outermost]++
			}
			if strings.HasSuffix(stack, "b") {
				callees[itself]++
			}
			for i := range stack {
				if stack[i] == 'b' {
					lines[fmt.Sprintf("f.c:%d", i+1)]++
				}
			}
		}
		if with == 0 {
			continue
		}
		for name, test := range map[string]struct {
			key  func(Row) string
			want map[string]int64
		}{
			"callers": {functionName, callers},
			"callees": {functionName, callees},
			"paths":   {func(r Row) string { return strings.Join(r.Frames, "") }, paths},
			"lines":   {func(r Row) string { return fmt.Sprintf("%s:%d", r.File, r.Line) }, lines},
		} {
			a := ask(t, p, name, "b")
			if diff := cmp.Diff(test.want, amounts(a, test.key)); diff != "" {
				t.Errorf("%s of b in %v (-want +got):\n%s", name, stacks, diff)
			}
			if len(a.Functions) != 1 || a.Functions[0].Amount != with {
				t.Errorf("%s of b in %v: got functions %+v, want b with %d", name, stacks, a.Functions, with)
			}
			for _, row := range a.Rows {
				if want := float64(row.Amount) / float64(len(stacks)); row.Share != want {
					t.Errorf("%s of b in %v: got share %v of %d, want %v", name, stacks, row.Share, row.Amount, want)
				}
			}
		}
	}
}

// A name is a function's before it is a regular expression.
func TestAskName(t *testing.T) {
	p := stacksOf([]string{"ab", "a.", "c"})
	if got, want := amounts(ask(t, p, "callers", "."), functionName), map[string]int64{"a": 1}; !cmp.Equal(got, want) {
		t.Errorf("callers of the function '.': got %v, want %v", got, want)
	}
	if got, want := amounts(ask(t, p, "callers", "[ab]"), functionName), map[string]int64{"a": 1, outermost: 2}; !cmp.Equal(got, want) {
		t.Errorf("callers of a and b: got %v, want %v", got, want)
	}
	q, _ := FindQuestion("callers")
	for of, want := range map[string]string{"x": `no function matches "x"`, "B": "similar names: b", "(": "not a regular expression"} {
		if _, err := Ask(p, q, Choice{Rows: 10, Of: of}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("callers of %q: got error %v, want one with %q", of, err, want)
		}
	}
}

// Waits are the notes at the ends of stacks with the program's function below them.
func TestAskWaits(t *testing.T) {
	q, _ := FindQuestion("waits")
	if _, err := Ask(stacksOf([]string{"a"}), q, Choice{Rows: 10}); err == nil || !strings.Contains(err.Error(), "off-cpu") {
		t.Errorf("got error %v for a profile without waits", err)
	}
	b := profile.NewBuilder(counted, offCPU)
	frame := func(name, path string, kind profile.Kind) profile.FrameID {
		f := profile.Frame{Function: b.Function(profile.Function{Name: name, SystemName: name}), Kind: kind}
		if path != "" {
			f.Mapping = b.Mapping(profile.Mapping{Path: path})
		}
		return b.Frame(f)
	}
	stack := profile.StackID(0)
	for _, f := range []profile.FrameID{
		frame("serve", "/bin/app", profile.KindUser), frame("poll", "/lib/libc.so.6", profile.KindUser),
		frame("do_sys_poll", profile.KernelPath, profile.KindKernel), frame("[poll]", "", profile.KindMarker),
	} {
		stack = b.Push(stack, f)
	}
	b.Add(profile.Sample{Stack: stack, CPU: -1, Values: []int64{1, 7e9}, Task: b.Task(profile.Task{PID: 3, TID: 4, Comm: "web"})})
	p := b.Profile(profile.Meta{}, profile.Losses{})
	got := ask(t, p, "waits", "").Rows
	if want := []Row{{Function: "serve", Module: "app", Reason: "[poll]", Amount: 7e9, Share: 1}}; !cmp.Equal(got, want) {
		t.Errorf("waits: got %+v, want %+v", got, want)
	}
	got = ask(t, p, "threads", "").Rows
	if want := []Row{{Process: 3, Thread: 4, Task: "web", Amount: 1, Share: 1, Values: map[string]int64{"samples": 1, "off-cpu": 7e9}}}; !cmp.Equal(got, want) {
		t.Errorf("threads: got %+v, want %+v", got, want)
	}
}

// Rows are limited, and the number of others is told.
func TestAskRows(t *testing.T) {
	q, _ := FindQuestion("functions")
	a, err := Ask(stacksOf([]string{"a", "a", "b", "c"}), q, Choice{Rows: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Rows) != 1 || a.Rows[0].Function != "a" || a.Rows[0].Self != 2 || a.More != 2 {
		t.Errorf("got %+v and %d more, want a with 2 and 2 more", a.Rows, a.More)
	}
	var text strings.Builder
	if err := a.WriteText(&text); err != nil || !strings.HasSuffix(text.String(), "and 2 more\n") {
		t.Errorf("got %v and the text\n%s\nwant one that ends with the number of other rows", err, &text)
	}
}

// Answers in each format, of typical and of hostile names.
func TestAnswerFormats(t *testing.T) {
	var got strings.Builder
	line := timelinetest.Recording(t)
	for _, q := range Questions {
		p, of := encodetest.Typical(), ""
		if q.OfFunction {
			of = "."
		}
		value := 0
		a, err := Ask(p, q, Choice{Value: value, Rows: 3, Of: of, Times: line, Slices: 3})
		if q.value != "" && err != nil {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, write := range []func() error{func() error { return a.WriteText(&got) }, func() error { return a.WriteMarkdown(&got) }, func() error { return a.WriteJSON(&got) }} {
			got.WriteString("\n")
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
	}
	encodetest.Golden(t, "answers.txt", []byte(got.String()))
	hostile := encodetest.Hostile()
	line.Threads[0].Names = []profile.Name{{Name: "\x1b[31m\n|`"}}
	for _, q := range Questions {
		a, err := Ask(hostile, q, Choice{Rows: 10, Of: map[bool]string{true: "(?s)."}[q.OfFunction], Times: line, Slices: 3})
		if q.value != "" && err != nil {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", q.Name, err)
		}
		var text bytes.Buffer
		if err := a.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc([]rune(text.String()), func(r rune) bool { return r < ' ' && r != '\n' }); i >= 0 {
			t.Errorf("%s: a control character in %q", q.Name, text.String())
		}
		text.Reset()
		if err := a.WriteJSON(&text); err != nil || !json.Valid(text.Bytes()) {
			t.Errorf("%s: no valid JSON: %v", q.Name, err)
		}
	}
}
