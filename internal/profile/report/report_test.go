package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/unwind/stackend"
)

var (
	counted = profile.ValueType{Type: "samples", Unit: "count"}
	onCPU   = profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	offCPU  = profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}
)

// sample is a sample with one frame.
type sample struct {
	comm, function string // "" is a frame without a name
	kind           profile.Kind
	end            stackend.End
	values         []int64
}

// made returns a profile of samples.
func made(types []profile.ValueType, m profile.Meta, l profile.Losses, samples ...sample) *profile.Profile {
	b := profile.NewBuilder(types...)
	for _, s := range samples {
		f := profile.Frame{Mapping: b.Mapping(profile.Mapping{Path: "/bin/app"}), Kind: s.kind, Address: 7}
		if s.function != "" {
			f.Function = b.Function(profile.Function{Name: s.function, SystemName: s.function})
		}
		b.Add(profile.Sample{Stack: b.Push(0, b.Frame(f)), Task: b.Task(profile.Task{PID: 1, Comm: s.comm}), CPU: -1, End: s.end, Values: s.values})
	}
	return b.Profile(m, l)
}

// many returns n functions with one sample each.
func many(n int) (all []sample) {
	for i := range n {
		all = append(all, sample{comm: "app", function: "f" + string(rune('A'+i)), values: []int64{10}})
	}
	return all
}

// waiting returns a profile whose stacks end in notes.
func waiting() *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "waits", Unit: "count"})
	app := b.Mapping(profile.Mapping{Path: "/bin/app"})
	for name, n := range map[string]int64{"load": 15, "store": 5} {
		caller := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name}), Mapping: app})
		note := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "[" + name + " of a disk]"}), Kind: profile.KindMarker})
		b.Add(profile.Sample{Stack: b.Push(b.Push(0, caller), note), Task: b.Task(profile.Task{Comm: "app"}), CPU: -1, Values: []int64{n}})
	}
	return b.Profile(profile.Meta{}, profile.Losses{})
}

// Functions of programs and notes are in all forms of a report.
func TestPrograms(t *testing.T) {
	r := New(waiting(), 0, 20, false)
	want := []Program{{"load", "app", 0.75, 0.75}, {"store", "app", 0.25, 0.25}}
	if diff := cmp.Diff(want, r.Programs); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Reason{{"[load of a disk]", 0.75}, {"[store of a disk]", 0.25}}, r.Reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	var text, md strings.Builder
	if err := errors.Join(r.WriteText(&text), r.WriteMarkdown(&md)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Innermost functions of programs by waits\n   75.0 %  75.0 %  load (app)\n", "Stacks end in\n  75.0 % [load of a disk]\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if want := "| inner | total | function | module |\n|---:|---:|---|---|\n| 75.0 % | 75.0 % | ` load ` | ` app ` |\n"; !strings.Contains(md.String(), want) {
		t.Errorf("no %q in\n%s", want, &md)
	}
}

// Profiles of folded stacks have no modules, and a profile may give no finding.
func TestNoModules(t *testing.T) {
	for hottest, want := range map[int64]string{
		100:  "\nFunctions by samples\n   10.0 %  10.0 %  a\n",
		1100: "\nFindings\n  a takes 55.0 % of all samples by itself: 1100 samples.\n",
	} {
		b := profile.NewBuilder(counted)
		for i, n := range append([]int64{hottest}, slices.Repeat([]int64{100}, 9)...) {
			f := profile.Frame{Function: b.Function(profile.Function{Name: string(rune('a' + i))})}
			b.Add(profile.Sample{Stack: b.Push(0, b.Frame(f)), Task: b.Task(profile.Task{}), CPU: -1, Values: []int64{n}})
		}
		var text strings.Builder
		if err := New(b.Profile(profile.Meta{}, profile.Losses{}), 0, 1, false).WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(text.String(), want) {
			t.Errorf("got %q, want the beginning %q", text.String(), want)
		}
	}
}

// A path is a list of functions, whatever the addresses in them.
func TestPathsOfSameFunctions(t *testing.T) {
	b := profile.NewBuilder(counted)
	app := b.Mapping(profile.Mapping{Path: "/bin/app"})
	frame := func(name string, address uint64) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name}), Mapping: app, Address: address})
	}
	for i := range uint64(4) {
		for _, leaf := range []string{"a", "b"}[:1+i%2] {
			b.Add(profile.Sample{Stack: b.Push(b.Push(0, frame("main", i)), frame(leaf, 100+i)), Task: b.Task(profile.Task{Comm: "app"}), CPU: -1, Values: []int64{10}})
		}
	}
	want := []Path{{[]string{"main", "a"}, 2. / 3}, {[]string{"main", "b"}, 1. / 3}}
	if diff := cmp.Diff(want, New(b.Profile(profile.Meta{}, profile.Losses{}), 0, 20, false).Paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

// Each rule finds its condition, and is silent without it.
func TestRules(t *testing.T) {
	samples := []profile.ValueType{counted}
	mixed := []profile.ValueType{counted, onCPU, offCPU}
	one := func(s sample) []sample { return append(many(9), s) }
	for _, c := range []struct {
		rule  string
		p     *profile.Profile
		value int
		want  string // "" if it is silent
	}{
		{"empty", made(samples, profile.Meta{}, profile.Losses{}), 0, "The profile is empty: the total of samples is 0."},
		{"empty", made(samples, profile.Meta{}, profile.Losses{}, many(1)...), 0, ""},
		{"load", made([]profile.ValueType{counted, onCPU}, profile.Meta{Duration: 15 * time.Millisecond}, profile.Losses{}, sample{"a", "f", 0, 0, []int64{1, 3_000_000}}), 1, "It used 20 % of a CPU in 15.0 ms; the rest of the time it waited or had no CPU."},
		{"load", made([]profile.ValueType{counted, onCPU}, profile.Meta{Duration: 2 * time.Second, CPUs: 2, Scope: "whole system"}, profile.Losses{}, sample{"a", "f", 0, 0, []int64{1, 1_000_000_000}}), 1, "On average, 0.50 of 2 CPUs were busy: 1.0 s of CPU time in 2.0 s."},
		{"load", made([]profile.ValueType{counted, onCPU, {Type: "wall", Unit: "nanoseconds"}}, profile.Meta{Duration: 2 * time.Second}, profile.Losses{}, sample{"a", "f", 0, 0, []int64{1, 1_000_000_000, 2_000_000_000}}), 1, "It used 50 % of a CPU in 2.0 s."},
		{"load", made([]profile.ValueType{counted, onCPU}, profile.Meta{Duration: 10 * time.Second, CPUs: 4}, profile.Losses{}, sample{"a", "f", 0, 0, []int64{1, 12_500_000_000}}), 1, "It used 1.25 CPUs of 4 on average: 12.5 s of CPU time in 10.0 s."},
		{"load", made([]profile.ValueType{counted, onCPU}, profile.Meta{}, profile.Losses{}, sample{"a", "f", 0, 0, []int64{1, 5}}), 1, ""},
		{"waits", made(mixed, profile.Meta{}, profile.Losses{},
			sample{"a", "[futex]", profile.KindMarker, 0, []int64{1, 0, 6_000_000_000}}, sample{"a", "[poll]", profile.KindMarker, 0, []int64{1, 0, 2_000_000_000}}, sample{"a", "f", 0, 0, []int64{1, 2_000_000_000, 0}}), 2,
			"Threads waited for 8.0 s, 80.0 % of their time, mostly [futex] (75.0 %), and ran for 2.0 s."},
		{"waits", made(mixed, profile.Meta{}, profile.Losses{}, sample{"a", "[futex]", profile.KindMarker, 0, []int64{1, 0, 2_000_000_000}}), 2,
			"Threads waited for 2.0 s, mostly [futex] (100.0 %), and ran too briefly for a sample."},
		{"waits", made(mixed, profile.Meta{}, profile.Losses{}, sample{"a", "[futex]", profile.KindMarker, 0, []int64{1, 0, 1}}, sample{"a", "f", 0, 0, []int64{1, 2, 0}}), 1, ""},
		{"hot_function", made(samples, profile.Meta{}, profile.Losses{}, append(many(2), sample{"a", "hot", 0, 0, []int64{20}})...), 0, "hot of app takes 50.0 % of all samples by itself: 20 samples."},
		{"hot_function", made(samples, profile.Meta{}, profile.Losses{}, many(10)...), 0, ""},
		{"hot_function", waiting(), 0, "load of app is the innermost function of a program in 75.0 % of all waits: 15 waits."},
		{"flat", made(samples, profile.Meta{}, profile.Losses{}, many(25)...), 0, "The profile is flat: the hottest function, fA, takes only 4.0 %; look at callers and at the paths below."},
		{"flat", made(samples, profile.Meta{}, profile.Losses{}, many(20)...), 0, ""},
		{"kernel", made(samples, profile.Meta{}, profile.Losses{}, append(many(2), sample{"a", "copy", profile.KindKernel, 0, []int64{20}})...), 0, "The kernel takes 50.0 %. Its hottest function, copy, takes 50.0 %."},
		{"kernel", made(samples, profile.Meta{}, profile.Losses{}, one(sample{"a", "copy", profile.KindKernel, 0, []int64{10}})...), 0, ""},
		{"process", made(samples, profile.Meta{}, profile.Losses{}, append(many(9), sample{"cc1", "f", 0, 0, []int64{10}})...), 0, "Of 2 names of processes and threads, app takes 90.0 %."},
		{"process", made(samples, profile.Meta{}, profile.Losses{}, many(9)...), 0, ""},
		{"interrupts", made(samples, profile.Meta{Event: "cpu-clock"}, profile.Losses{}, append(many(9), sample{"a", "_raw_spin_unlock_irqrestore", profile.KindKernel, 0, []int64{10}})...), 0,
			"_raw_spin_unlock_irqrestore enables interrupts: its 10.0 % are the time of the code before it, which runs without interrupts, so that the clock cannot sample it."},
		{"interrupts", made(samples, profile.Meta{Event: "cycles"}, profile.Losses{}, append(many(9), sample{"a", "_raw_spin_unlock_irqrestore", profile.KindKernel, 0, []int64{10}})...), 0, ""},
		{"interrupts", made(samples, profile.Meta{Event: "cpu-clock"}, profile.Losses{}, append(many(9), sample{"a", "_raw_spin_unlock_irqrestore", 0, 0, []int64{10}})...), 0, ""},
		{"interrupts", made(samples, profile.Meta{Event: "cpu-clock"}, profile.Losses{}, append(many(9), sample{"a", "_raw_spin_unlock_irqrestore", profile.KindKernel, 0, []int64{2}})...), 0, ""},
		{"few_samples", made(samples, profile.Meta{}, profile.Losses{}, many(10)...), 0, "There are only 100 samples: a share of 50 % has a standard error of 5 points."},
		{"few_samples", made(samples, profile.Meta{}, profile.Losses{}, many(20)...), 0, ""},
		{"few_samples", made([]profile.ValueType{onCPU, offCPU}, profile.Meta{Frequency: 1000}, profile.Losses{}, sample{"a", "f", 0, 0, []int64{3_000_000, 9_000_000}}), 0, "There are only about 3 samples: a share of 50 % has a standard error of 29 points."},
		{"few_samples", made([]profile.ValueType{onCPU, offCPU}, profile.Meta{Frequency: 1000}, profile.Losses{}, sample{"a", "f", 0, 0, []int64{3_000_000, 9_000_000}}), 1, ""},
		{"few_samples", made([]profile.ValueType{onCPU, offCPU}, profile.Meta{Frequency: 1000}, profile.Losses{}, sample{"a", "f", 0, 0, []int64{200_000_000, 0}}), 0, ""},
		{"unnamed", made(samples, profile.Meta{}, profile.Losses{}, one(sample{"a", "", 0, 0, []int64{10}})...), 0, "10.0 % is in functions without names, most of it in app (10.0 %)."},
		{"unnamed", made(samples, profile.Meta{}, profile.Losses{}, many(9)...), 0, ""},
		{"lost", made(samples, profile.Meta{}, profile.Losses{profile.LossSamples: 1}, many(10)...), 0, "1 sample was not counted; 100 were."},
		{"lost", made(samples, profile.Meta{}, profile.Losses{profile.LossSamples: 1}, many(11)...), 0, ""},
		{"truncated", made(samples, profile.Meta{}, profile.Losses{}, one(sample{"a", "f", 0, stackend.Depth, []int64{10}})...), 0, `10.0 % has stacks without their outermost callers; the most frequent cause is "depth limit" (10.0 %).`},
		{"truncated", made(samples, profile.Meta{}, profile.Losses{}, one(sample{"a", "f", 0, stackend.Depth, []int64{9}})...), 0, ""},
	} {
		got := ""
		for _, f := range New(c.p, c.value, 20, false).Findings {
			if f.Rule == c.rule {
				got = f.Text
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.rule, got, c.want)
		}
	}
}

// found returns the sentence of a rule and its remedy, or "".
func found(p *profile.Profile, value int, rule string) (text, remedy string) {
	for _, f := range New(p, value, 20, false).Findings {
		if f.Rule == rule {
			return f.Text, f.Remedy
		}
	}
	return "", ""
}

// stacked is a sample whose stack is given by names, outermost first: "k:name" is of the
// kernel, "i:name" inlined, "j:" generated code without a name, and "[note]" a note.
type stacked struct {
	pid, tid int
	frames   []string
	values   []int64
}

func build(types []profile.ValueType, m profile.Meta, samples ...stacked) *profile.Profile {
	b := profile.NewBuilder(types...)
	for _, s := range samples {
		var stack profile.StackID
		for _, name := range s.frames {
			f := profile.Frame{Mapping: b.Mapping(profile.Mapping{Path: "/usr/lib/libapp.so.1"}), Address: 7}
			switch kind, rest, ok := strings.Cut(name, ":"); {
			case ok && kind == "k":
				f.Kind, name = profile.KindKernel, rest
			case ok && kind == "i":
				f.Inlined, name = true, rest
			case ok && kind == "j":
				f.Kind, name = profile.KindJIT, rest
			case name[0] == '[':
				f.Kind = profile.KindMarker
			}
			if name != "" {
				f.Function = b.Function(profile.Function{Name: name})
			}
			stack = b.Push(stack, b.Frame(f))
		}
		b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{PID: s.pid, TID: s.tid, Comm: "app"}), CPU: -1, Values: s.values})
	}
	return b.Profile(m, profile.Losses{})
}

// The rules that look at whole stacks.
func TestStackRules(t *testing.T) {
	samples, times := []profile.ValueType{counted}, []profile.ValueType{onCPU, offCPU}
	const s = int64(time.Second)
	ten := profile.Meta{Duration: 10 * time.Second}
	one := func(n int64, frames ...string) stacked { return stacked{1, 0, frames, []int64{n}} }
	both := func(pid, tid int, on, off int64, frames ...string) stacked {
		return stacked{pid, tid, frames, []int64{on * s, off * s}}
	}
	for _, c := range []struct {
		rule string
		p    *profile.Profile
		want string
	}{
		{"thread", build(times, profile.Meta{}, both(1, 1, 3, 0, "main", "work"), both(1, 1, 0, 4, "main", "read", "[disk]"), both(1, 1, 0, 2, "main", "[preempted]"), both(1, 2, 0, 90, "idle", "[futex]")),
			"The busiest thread, app 1/1, ran for 3.0 s and waited for 6.0 s, mostly [disk] (66.7 %). The thread was ready to run, but got no CPU, for 2.0 s."},
		{"thread", build(times, profile.Meta{}, both(1, 0, 0, 9, "main", "[wait for child]"), both(2, 0, 1, 2, "main", "[disk]")),
			"The busiest process, app 2, ran for 1.0 s and waited for 2.0 s, mostly [disk] (100.0 %)."},
		{"thread", build(times, profile.Meta{}, both(1, 1, 3, 0, "main"), both(1, 1, 0, 4, "main", "[disk]")), ""},
		{"thread", build(times, profile.Meta{}, both(1, 1, 3, 0, "main"), both(1, 2, 0, 4, "main", "[disk]")), ""},
		{"starved", build(times, profile.Meta{}, both(1, 1, 3, 0, "main"), both(1, 1, 0, 2, "main", "[preempted]")),
			"The thread app 1/1 was ready to run, but got no CPU, for 2.0 s, and ran for 3.0 s."},
		{"starved", build(times, profile.Meta{}, both(1, 1, 30, 0, "main"), both(1, 1, 0, 2, "main", "[preempted]")), ""},
		{"starved", build([]profile.ValueType{{Type: "runnable", Unit: "nanoseconds"}, offCPU}, profile.Meta{}, both(1, 1, 1, 4, "main", "[disk]")),
			"Threads were ready to run, but got no CPU, for 1.0 s, 25.0 % of the time off the CPU."},
		{"starved", build([]profile.ValueType{{Type: "runnable", Unit: "nanoseconds"}, offCPU}, profile.Meta{}, both(1, 1, 1, 20, "main", "[disk]")), ""},
		{"idle", build(times, ten, both(1, 1, 3, 0, "main"), both(1, 1, 0, 7, "main", "[disk]"), both(1, 2, 0, 10, "pool", "k:do_futex", "[futex]"), both(1, 3, 0, 9, "pool", "[futex]")),
			"2 idle threads waited for 19.0 s, nearly all of the time in one place, mostly in pool; the other findings leave this time out."},
		{"waits", build(times, ten, both(1, 1, 3, 0, "main"), both(1, 1, 0, 7, "main", "[disk]"), both(1, 2, 0, 10, "pool", "[futex]")),
			"Threads waited for 7.0 s, 70.0 % of their time, mostly [disk] (100.0 %), and ran for 3.0 s."},
		{"idle", build(times, ten, both(1, 1, 0, 10, "pool", "[futex]"), both(1, 2, 0, 10, "pool", "[futex]")), ""},                         // there is nothing else
		{"idle", build(times, ten, both(1, 1, 0, 10, "pool", "[futex]"), stacked{1, 3, []string{"main"}, []int64{s / 4, 0}}), ""},           // or little else
		{"idle", build(times, ten, both(1, 1, 3, 0, "main"), both(1, 2, 0, 5, "one", "[futex]"), both(1, 2, 0, 5, "other", "[futex]")), ""}, // two places
		{"idle", build(times, ten, both(1, 1, 3, 0, "main"), both(1, 2, 0, 4, "pool", "[futex]")), ""},                                      // a short life
		{"idle", build([]profile.ValueType{offCPU, {Type: "waits", Unit: "count"}}, ten, stacked{1, 0, []string{"main", "[disk]"}, []int64{8 * s, 100}}, stacked{1, 0, []string{"pool", "[futex]"}, []int64{30 * s, 4}}),
			"Idle threads waited for 30.0 s, nearly all of the time in one place, mostly in pool; the other findings leave this time out."},
		{"idle", build([]profile.ValueType{offCPU, {Type: "waits", Unit: "count"}}, ten, stacked{1, 0, []string{"client", "[poll]"}, []int64{7 * s, 1}}, stacked{1, 0, []string{"main", "[preempted]"}, []int64{2 * s, 90}}), ""}, // a single thread
		{"idle", build(times, ten, both(1, 1, 0, 10, "main", "[disk read]"), both(2, 2, 0, 2, "k:worker_thread", "[idle worker]")),
			"1 idle thread waited for 2.0 s, nearly all of the time in one place, mostly in worker_thread; the other findings leave this time out."},
		{"memory", build(times, profile.Meta{}, both(1, 1, 7, 0, "main"), both(1, 1, 2, 0, "main", "k:exc_page_fault", "k:do_wp_page", "k:copy_mc"), both(1, 1, 1, 0, "main", "k:do_anonymous_page.isra.0"), both(1, 1, 0, 4, "main", "k:do_swap_page", "k:schedule", "[disk]")),
			"Copying pages shared since a fork (copy-on-write) took 2.0 s, 20.0 % of the CPU time. Touching pages for the first time took 1.0 s, 10.0 % of the CPU time. Reading pages from swap took 4.0 s, 100.0 % of the off-CPU time."},
		{"memory", build(samples, profile.Meta{}, one(96, "main"), one(4, "main", "k:do_wp_page")), ""},
		{"memory", build(samples, profile.Meta{}, one(50, "main"), one(50, "main", "do_wp_page")), ""}, // not the kernel's
		{"split", build(samples, profile.Meta{}, one(50, "_start", "main", "loop", "read", "parse"), one(30, "_start", "main", "loop", "write"), one(12, "_start", "main", "loop", "log"), one(5, "_start", "main", "loop"), one(3, "_start", "main", "exit")),
			"The calls branch in loop (97.0 %): it calls read (50.0 %), write (30.0 %) and log (12.0 %)."},
		{"split", build(samples, profile.Meta{}, one(50, "one"), one(50, "other")), ""},
		{"split", build(samples, profile.Meta{}, one(50, "main", "one"), one(9, "main", "other"), one(41, "main")), ""},
		{"split", build(samples, profile.Meta{}, one(50, "main", "[a]"), one(50, "main", "[b]")), ""},
		{"kernel", build(samples, profile.Meta{}, one(50, "main", "write", "i:inlined", "k:entry", "k:copy"), one(20, "main", "read", "k:entry", "k:lookup"), one(30, "main")),
			"The kernel takes 70.0 %; calls by write take the largest part, 50.0 %. Its hottest function, copy, takes 50.0 %."},
		{"bpf", build(samples, profile.Meta{}, one(5, "main", "k:entry", "k:bpf_prog_0123456789abcdef_count", "k:lookup"), one(95, "main")),
			"BPF programs take 5.0 %, including those that measure."},
		{"bpf", build(samples, profile.Meta{}, one(4, "main", "k:bpf_prog_0123456789abcdef_count"), one(96, "main", "bpf_prog_not_the_kernels")), ""},
		{"hot_function", build(samples, profile.Meta{}, one(50, "main", "j:"), one(30, "main", "hot"), one(20, "main")),
			"hot of libapp.so.1 takes 30.0 % of all samples by itself: 30 samples."},
	} {
		if got, _ := found(c.p, 0, c.rule); got != c.want {
			t.Errorf("%s: got %q, want %q", c.rule, got, c.want)
		}
	}
}

// A recording first shows what the busiest thread spent more time with. Idle threads, other profiles
// and other values do not change it.
func TestFirst(t *testing.T) {
	const s = int64(time.Second)
	times := []profile.ValueType{onCPU, offCPU}
	ten := profile.Meta{Duration: 10 * time.Second}
	busy, waiting, pool := stacked{1, 1, []string{"main"}, []int64{3 * s, 0}}, stacked{1, 1, []string{"main", "[disk]"}, []int64{0, 7 * s}}, stacked{1, 2, []string{"pool", "[futex]"}, []int64{0, 10 * s}}
	for _, c := range []struct {
		name        string
		p           *profile.Profile
		value, want int
	}{
		{"it waited", build(times, ten, busy, waiting), 0, 1},
		{"it ran", build(times, ten, busy, pool), 0, 0},
		{"another value", build(append(times, counted), ten, stacked{1, 1, []string{"main"}, []int64{1, 7, 1}}), 2, 2},
		{"no waits", build([]profile.ValueType{onCPU}, ten, stacked{1, 1, []string{"main"}, []int64{1}}), 0, 0},
		{"nothing", build(times, ten), 0, 0},
	} {
		if got := First(c.p, c.value); got != c.want {
			t.Errorf("%s: got value %d, want %d", c.name, got, c.want)
		}
	}
}

// The summary of a recording has its totals without the rule.
func TestAnswers(t *testing.T) {
	m := profile.Meta{Duration: 10 * time.Second}
	for _, c := range []struct {
		types  []profile.ValueType
		values []int64
		want   []string
	}{
		{[]profile.ValueType{counted, onCPU}, []int64{1, 1e9}, []string{"load"}},
		{[]profile.ValueType{onCPU, offCPU}, []int64{1e9, 3e9}, []string{"waits"}},
	} {
		var got []string
		findings, _ := Answers(build(c.types, m, stacked{1, 1, []string{"main"}, c.values}), 1, false)
		for _, f := range findings {
			got = append(got, f.Rule)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: got rules %q, want %q", c.types, got, c.want)
		}
	}
}

// The remedy for missing names is the one for the module with most of them.
func TestUnnamedRemedy(t *testing.T) {
	stripped := profile.Meta{Stripped: profile.StrippedFiles{Files: []profile.Stripped{
		{Path: "/usr/bin/app", Remedy: "install app-dbg"}, {Path: "/usr/lib/libapp.so.1", Remedy: "install libapp-dbg"},
	}}}
	for kind, want := range map[string][2]string{
		"libapp.so.1+0x10": {"100.0 % is in functions without names, most of it in libapp.so.1 (100.0 %).", "install libapp-dbg"},
		"j:":               {"100.0 % is in functions without names, most of it in generated code (100.0 %).", "a perf map or a jitdump file names it, if the program can write one"},
	} {
		text, remedy := found(build([]profile.ValueType{counted}, stripped, stacked{1, 0, []string{"main", kind}, []int64{9}}), 0, "unnamed")
		if text != want[0] || remedy != want[1] {
			t.Errorf("%s: got %q with remedy %q, want %q", kind, text, remedy, want)
		}
	}
}

// Text and Markdown have no rows of 0.0 %, but JSON has them.
func TestSmallShares(t *testing.T) {
	p := made([]profile.ValueType{counted}, profile.Meta{}, profile.Losses{}, sample{"a", "large", 0, 0, []int64{99_999}}, sample{"a", "small", 0, 0, []int64{1}})
	r := New(p, 0, 20, false)
	var text, markdown strings.Builder
	if err := errors.Join(r.WriteText(&text), r.WriteMarkdown(&markdown)); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), markdown.String()} {
		if !strings.Contains(out, "large") || strings.Contains(out, "small") {
			t.Errorf("got %s\nwant only the large function and its path", out)
		}
	}
	if len(r.Functions) != 2 || len(r.Paths) != 2 {
		t.Errorf("got %d functions and %d paths in JSON, want 2", len(r.Functions), len(r.Paths))
	}
}

// docs/report.md has a row for each rule.
func TestRulesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/report.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if !strings.Contains(string(text), "\n| `"+r.name+"` | ") {
			t.Errorf("docs/report.md has no row for %s", r.name)
		}
	}
}

// No name can be markup, end a table's cell or reach the terminal.
func TestHostile(t *testing.T) {
	names := slices.Concat(encodetest.HostileNames, []string{"a|b", "`x` [y](http://z) @user", "``", "<img src=x>"})
	for _, name := range names {
		if name == "" {
			continue // a frame without a name
		}
		p := made([]profile.ValueType{counted}, profile.Meta{Scope: name, Host: name, Stripped: profile.StrippedFiles{Files: []profile.Stripped{{Path: name, Remedy: name}}}},
			profile.Losses{}, sample{name, name, profile.KindKernel, 0, []int64{3}}, sample{"b", "", 0, 0, []int64{1}})
		encodetest.NameAll(p, name)
		r := New(p, 0, 5, false)
		var text, markdown, data bytes.Buffer
		for write, out := range map[*bytes.Buffer]func() error{&text: func() error { return r.WriteText(&text) }, &markdown: func() error { return r.WriteMarkdown(&markdown) }, &data: func() error { return r.WriteJSON(&data) }} {
			if err := out(); err != nil {
				t.Fatal(err)
			}
			for _, c := range write.String() {
				if c != '\n' && !unicode.IsPrint(c) {
					t.Errorf("%q: got %q in %s", name, c, write)
				}
			}
		}
		shown := plain.Terminal(name)
		cells := 4
		for line := range strings.Lines(markdown.String()) {
			switch got := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") - 1; {
			case line == "## Slowest intervals\n":
				cells = 7
			case strings.HasPrefix(line, "| ") && got != cells:
				t.Errorf("%q: got the row %q, want %d cells", name, line, cells)
			}
			if rest := outside(line); strings.ContainsAny(rest, "<[@") {
				t.Errorf("%q: got %q outside of code in %q", name, rest, line)
			}
		}
		var back Report
		if err := json.Unmarshal(data.Bytes(), &back); err != nil || back.Functions[0].Name != shown {
			t.Errorf("%q: got %q, %v from JSON, want %q", name, back.Functions[0].Name, err, shown)
		}
	}
}

// outside returns a line of Markdown without its code spans, as CommonMark 6.1 finds them: a
// run of backticks up to the next run of the same length.
func outside(line string) string {
	var b strings.Builder
	for line != "" {
		before, rest, found := strings.Cut(line, "`")
		b.WriteString(before)
		if !found {
			break
		}
		n := 1 + len(rest) - len(strings.TrimLeft(rest, "`"))
		rest = rest[n-1:]
		closed := false
		for at := 0; at < len(rest); {
			if rest[at] != '`' {
				at++
				continue
			}
			run := len(rest[at:]) - len(strings.TrimLeft(rest[at:], "`"))
			at += run
			if run == n {
				rest, closed = rest[at:], true
				break
			}
		}
		if !closed {
			b.WriteString(strings.Repeat("`", n))
		}
		line = rest
	}
	return b.String()
}

// The cost of a report does not depend on the depth of stacks: here, every function of a chain
// of calls has a sample.
func TestDeep(t *testing.T) {
	cost := func(depth int) (perStack uint64) {
		b := profile.NewBuilder(counted)
		task := b.Task(profile.Task{PID: 1, Comm: "deep"})
		var f [3]profile.FrameID
		for i := range f {
			f[i] = b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "f" + string(rune('0'+i))})})
		}
		var s profile.StackID
		for i := range depth {
			s = b.Push(s, f[i%3])
			b.Add(profile.Sample{Stack: s, Task: task, CPU: -1, Values: []int64{1}})
		}
		p := b.Profile(profile.Meta{}, profile.Losses{})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if r := New(p, 0, 10, false); r.Functions[0].Total != 1 {
			t.Errorf("%d functions: got %+v first, want all samples in f0", depth, r.Functions[0])
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(depth)
	}
	if small, large := cost(500), cost(5000); large > 2*small {
		t.Errorf("%d bytes are allocated for a stack of a deep profile, %d of a shallow one", large, small)
	}
}
