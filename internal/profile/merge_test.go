package profile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// hostProfile returns a profile of one stack: a function of a file that is mapped at start, called by
// generated code, and a function of the kernel. Addresses of the latter two begin at start, too.
func hostProfile(host string, start uint64, pid int) *Profile {
	b := NewBuilder(ValueType{Type: "samples", Unit: "count"}, ValueType{Type: "cpu", Unit: "nanoseconds"})
	file := b.Mapping(Mapping{Path: "/srv/" + host + "/app", BuildID: "aa", Start: start, Limit: start + 0x1000, Placed: true})
	stack := StackID(0)
	for _, f := range []struct {
		name string
		Frame
	}{
		{"compiled", Frame{Kind: KindJIT, Address: start + 7, Return: true}},
		{"main", Frame{Mapping: file, Address: 0x10}},
		{"do_syscall_64", Frame{Kind: KindKernel, Address: start + 9}},
	} {
		f.Function = b.Function(Function{Name: f.name, SystemName: f.name})
		stack = b.Push(stack, b.Frame(f.Frame))
	}
	task := b.Task(Task{PID: pid, TID: pid + 1, Comm: "app", Labels: b.Labels(NewLabels([]Label{{Key: "route", Value: "/"}}))})
	b.Add(Sample{Stack: stack, Task: task, CPU: pid % 4, Values: []int64{2, 20}})
	p := b.Profile(Meta{
		Host: host, PerCPU: true, Start: time.Unix(int64(1000-pid), 0), Duration: time.Minute, Frequency: 49,
		Stripped: StrippedFiles{Files: []Stripped{{Path: "/lib/x", Samples: 1}}},
	}, Losses{LossSamples: 1, LossUnresolvedFrames: 5})
	p.Executables = map[int]string{pid: "/srv/app"}
	p.Published = map[int][]Attribute{1: {{Key: "host", Value: host}}}
	return p
}

// merged returns the sum of profiles.
func merged(t *testing.T, profiles ...*Profile) *Profile {
	t.Helper()
	var m Merger
	for i, p := range profiles {
		if err := m.Add(p, fmt.Sprint("profile ", i)); err != nil {
			t.Fatal(err)
		}
	}
	p := m.Profile()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return p
}

// The tables of a sum do not grow with the number of hosts: addresses, IDs and names of files that
// differ between them do not matter. What does matter is in the sum.
func TestMergeHosts(t *testing.T) {
	var fleet []*Profile
	for i := range 100 {
		fleet = append(fleet, hostProfile(fmt.Sprint("host", i), 0x7f0000000000+uint64(i)<<16, 100+i))
	}
	one, p := merged(t, fleet[0]), merged(t, fleet...)
	for name, sizes := range map[string][2]int{
		"mappings": {len(p.Mappings), len(one.Mappings)}, "functions": {len(p.Functions), len(one.Functions)},
		"frames": {len(p.Frames), len(one.Frames)}, "stacks": {len(p.Stacks), len(one.Stacks)},
		"tasks": {len(p.Tasks), len(one.Tasks)}, "labels": {len(p.Labels), len(one.Labels)}, "samples": {len(p.Samples), 1},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("got %d %s of 100 hosts, want %d as of one", sizes[0], name, sizes[1])
		}
	}
	if p.Total(0) != 200 || p.Total(1) != 2000 {
		t.Errorf("got %d samples and %d ns, want 200 and 2000", p.Total(0), p.Total(1))
	}
	if got := p.LabelsOf(p.Samples[0].Task); len(got) != 1 || got[0].Value != "/" {
		t.Errorf("got the labels %v, want the route", got)
	}
	if m := p.Mappings[1]; m.BuildID != "aa" {
		t.Errorf("got the build ID %s, want aa", m.BuildID)
	}
	if task := p.Tasks[p.Samples[0].Task]; task.PID != 0 || task.TID != 0 || p.Samples[0].CPU != -1 || p.Meta.PerCPU || len(p.Executables)+len(p.Published) > 0 {
		t.Errorf("got %+v on CPU %d, and processes %v: they mean nothing on another host", task, p.Samples[0].CPU, p.Executables)
	}
	want := Meta{Start: time.Unix(801, 0), Duration: 100 * time.Minute, Frequency: 49}
	if m := p.Meta; m.Host != "" || !m.Start.Equal(want.Start) || m.Duration != want.Duration || m.Frequency != want.Frequency {
		t.Errorf("got %+v, want no host, from %s for %s", m, want.Start, want.Duration)
	}
	if got := p.Meta.Stripped.Files; len(got) != 1 || got[0].Samples != 100 {
		t.Errorf("got files without symbols %v, want one with 100 samples", got)
	}
	if p.Losses[LossSamples] != 100 || p.Losses[LossUnresolvedFrames] != 0 {
		t.Errorf("got %d lost samples and %d functions, want 100, and none: their number is unknown", p.Losses[LossSamples], p.Losses[LossUnresolvedFrames])
	}
}

// Profiles of one host keep IDs and addresses. What is known of two processes with the same ID is left out.
func TestMergeSameHost(t *testing.T) {
	a, b := hostProfile("web", 0x5000, 7), hostProfile("web", 0x9000, 7)
	b.Executables[7], b.Executables[8] = "/usr/bin/other", "/bin/sh"
	p := merged(t, a, b)
	if len(p.Tasks) != 1 || p.Tasks[0].PID != 7 || !p.Meta.PerCPU || p.Samples[0].CPU != 3 {
		t.Errorf("got the tasks %+v, want process 7 on CPU 3", p.Tasks)
	}
	if len(p.Mappings) != 2 || len(p.Samples) != 2 {
		t.Errorf("got %d mappings and %d samples, want one file, and two: the kernel was at two addresses", len(p.Mappings)-1, len(p.Samples))
	}
	if p.Executables[7] != "" || p.Executables[8] != "/bin/sh" || len(p.Published[1]) != 1 {
		t.Errorf("got the programs %v and attributes %v", p.Executables, p.Published)
	}
}

// Without IDs, the runs of one host have the tables of one run, too.
func TestMergeWithoutIDs(t *testing.T) {
	m := Merger{WithoutIDs: true}
	for i := range 10 {
		if err := m.Add(hostProfile("web", 0x7f0000000000+uint64(i)<<16, 100+i), "web"); err != nil {
			t.Fatal(err)
		}
	}
	if p := m.Profile(); len(p.Samples) != 1 || len(p.Tasks) != 1 || p.Tasks[0].PID != 0 || p.Total(0) != 20 || p.Meta.Host != "web" || m.SeveralHosts() {
		t.Errorf("got %d samples of %+v on %q", len(p.Samples), p.Tasks, p.Meta.Host)
	}
}

// Profiles with other values, units or intervals are refused, with the reason. The order of values does not
// matter.
func TestMergeKinds(t *testing.T) {
	of := func(every string, types ...ValueType) *Profile {
		b := NewBuilder(types...)
		values := make([]int64, len(types))
		for i := range values {
			values[i] = int64(len(types[i].Type))
		}
		b.Add(Sample{Task: b.Task(Task{}), CPU: -1, Values: values})
		return b.Profile(Meta{Every: Interval{Of: ValueType{Type: every}, Amount: 1}}, Losses{})
	}
	cpu, samples := ValueType{Type: "cpu", Unit: "nanoseconds"}, ValueType{Type: "samples", Unit: "count"}
	base := of("cpu", samples, cpu)
	for _, test := range []struct {
		p    *Profile
		want string
	}{
		{of("cpu", samples), "a has cpu (nanoseconds), samples, and b has samples: profiles of different kinds"},
		{of("cpu", samples, ValueType{Type: "cpu", Unit: "bytes"}), "cpu (bytes)"},
		{of("cycles", samples, cpu), "every amount of cycles"},
		{of("cpu"), "b has no values"},
	} {
		var m Merger
		if err := m.Add(base, "a"); err != nil {
			t.Fatal(err)
		}
		if err := m.Add(test.p, "b"); !errors.As(err, new(*MismatchError)) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
	if p := merged(t, base, of("cpu", cpu, samples)); p.Total(0) != 14 || p.Total(1) != 6 {
		t.Errorf("got %d and %d, want 14 samples and 6 ns", p.Total(0), p.Total(1))
	}
	double := of("", samples, samples)
	double.Samples[0].Values[1] = 1
	if p := merged(t, double, double); p.Total(0) != 14 || p.Total(1) != 2 {
		t.Errorf("got %d and %d of two values of the same type, want 14 and 2", p.Total(0), p.Total(1))
	}
	large := of("", samples)
	large.Samples[0].Values[0] = 1 << 62
	var m Merger
	if err := errors.Join(m.Add(large, "a"), m.Add(large, "b")); err == nil {
		t.Error("got no error of a sum that is too large")
	}
}

// The sum of no profiles is empty.
func TestMergeNothing(t *testing.T) {
	if p := merged(t); len(p.Samples) != 0 {
		t.Errorf("got %d samples", len(p.Samples))
	}
}

// A sum has the slowest intervals of all profiles. Of several hosts, they have no IDs of processes.
func TestMergeSlowest(t *testing.T) {
	var all []*Profile
	for i := range 3 {
		p := hostProfile("same", 0x1000, 100)
		p.Meta.Slowest = []SlowInterval{{Length: time.Duration(10 - i), PID: 100, TID: 101}, {Length: time.Duration(5 * i), PID: 100, TID: 101}}
		all = append(all, p)
	}
	for name, other := range map[string]string{"one host": "same", "two hosts": "other"} {
		all[2].Meta.Host = other
		var got []int
		for _, s := range merged(t, all...).Meta.Slowest {
			got = append(got, int(s.Length))
			if known := s.PID != 0 && s.TID != 0; known != (other == "same") {
				t.Errorf("%s: got an interval of process %d", name, s.PID)
			}
		}
		if fmt.Sprint(got) != "[10 10 9 8 5 0]" {
			t.Errorf("%s: got lengths %v", name, got)
		}
	}
	if all[0].Meta.Slowest[0].PID != 100 {
		t.Error("merging changed a profile")
	}
}
