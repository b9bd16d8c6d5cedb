package naming

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// landmark is a function whose address the tests use.
//
//go:noinline
func landmark() error { return errors.New("landmark") }

// unresolved returns a profile of this program without names. Its stack has two frames in
// landmark: one at its first bytes, called from the other, a return address. change
// changes the mapping.
func unresolved(t *testing.T, change func(*profile.Mapping)) *profile.Profile {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := profile.Mapping{Path: exe, BuildID: f.BuildID()}
	change(&m)
	address := uint64(reflect.ValueOf(landmark).Pointer())
	if _, ok := f.Offset(address); !ok {
		testenv.Unsupported(t, "this program does not run at the addresses that it was linked for")
	}
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	mapping := b.Mapping(m)
	frame := b.Frame(profile.Frame{Mapping: mapping, Address: address + 1})
	b.Add(profile.Sample{
		Stack: b.Push(b.Push(0, frame), frame), Task: b.Task(profile.Task{PID: 1, Comm: "test"}), CPU: -1, Values: []int64{7},
	})
	return b.Profile(profile.Meta{Command: "test"}, profile.Losses{})
}

// resolved returns the names in the single stack, root first, and the problems.
func resolved(t *testing.T, p *profile.Profile) (names []string, problems []error) {
	t.Helper()
	r := Resolver{Profile: p, Finder: debugfiletest.NewFinder(t)}
	p, err := r.Resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Samples) != 1 || p.Samples[0].Values[0] != 7 || p.Meta.Command != "test" {
		t.Fatalf("got samples %+v of %+v, want one of value 7", p.Samples, p.Meta)
	}
	for _, f := range p.AppendFrames(nil, p.Samples[0].Stack) {
		names = append(names, p.FrameName(f))
	}
	slices.Reverse(names)
	return names, r.problems
}

func TestResolve(t *testing.T) {
	const name = "fulgur/internal/capture/naming.landmark"
	p := unresolved(t, func(*profile.Mapping) {})
	if !Unnamed(p) {
		t.Error("Unnamed is false for a profile without names")
	}
	names, problems := resolved(t, p)
	if !slices.Equal(names, []string{name, name}) || len(problems) > 0 {
		t.Errorf("got names %q, problems %v; want %q twice", names, problems, name)
	}
}

// The resolved profile no longer says that names are missing.
func TestResolveRecounts(t *testing.T) {
	p := unresolved(t, func(*profile.Mapping) {})
	p.CountUnnamed(false)
	if p.Losses[profile.LossUnresolved] != 7 || p.Losses[profile.LossUnresolvedFrames] != 1 {
		t.Fatalf("got losses %v, want 7 samples at 1 place", p.Losses)
	}
	m := p.Mappings[1]
	p.Meta.Stripped.Files = []profile.Stripped{{Path: m.Path, BuildID: m.BuildID, Samples: 7}}
	for _, found := range []bool{true, false} {
		if !found {
			p.Mappings[1].BuildID = "00112233"
			p.Meta.Stripped.Files[0].BuildID = "00112233"
		}
		r := Resolver{Profile: p, Finder: debugfiletest.NewFinder(t)}
		got, err := r.Resolve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if missing := got.Losses != (profile.Losses{}); missing == found {
			t.Errorf("names found %v: got losses %v", found, got.Losses)
		}
		if n := len(got.Meta.Stripped.Files); (n == 0) != found {
			t.Errorf("names found %v: got %d files without symbols", found, n)
		}
	}
}

// Code from other builds and missing files keeps its addresses, with a warning.
func TestResolveOthers(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*profile.Mapping){
		"is another build": func(m *profile.Mapping) { m.BuildID = "00112233" },
		"no such file":     func(m *profile.Mapping) { m.Path = "/nonexistent/program" },
		"was deleted":      func(m *profile.Mapping) { m.Path, m.BuildID = m.Path+" (deleted)", "" },
		"not an ELF file":  func(m *profile.Mapping) { m.Path = text },
	} {
		t.Run(want, func(t *testing.T) {
			names, problems := resolved(t, unresolved(t, change))
			if len(names) != 2 || !strings.Contains(names[0], "+0x") {
				t.Errorf("got names %q, want two addresses", names)
			}
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), want) {
				t.Errorf("got problems %v, want %q", problems, want)
			}
		})
	}
}

// In a profile with names, a function without a symbol gets a name only if a build ID
// proves that the file is the one that ran.
func TestResolveFunctionWithoutSymbol(t *testing.T) {
	bare := unresolved(t, func(*profile.Mapping) {})
	m, at := bare.Mappings[1], bare.Frames[1].Address
	start := fmt.Sprintf("%s+%#x", bare.ModuleName(1), at-1)
	partly := func(m profile.Mapping) *profile.Profile {
		b := profile.NewBuilder(bare.ValueTypes...)
		name := func(name string) profile.FunctionID {
			return b.Function(profile.Function{Name: name, SystemName: name})
		}
		mapping := b.Mapping(m)
		stack := b.Push(0, b.Frame(profile.Frame{Function: name("main"), Mapping: mapping, Address: at}))
		stack = b.Push(stack, b.Frame(profile.Frame{Function: name(start), Mapping: mapping, Address: at, Offset: 1}))
		b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{PID: 1, Comm: "test"}), CPU: -1, Values: []int64{7}})
		return b.Profile(profile.Meta{Command: "test"}, profile.Losses{})
	}
	unproven, other := m, m
	unproven.BuildID, other.BuildID = "", "00112233"
	if m.BuildID == "" {
		testenv.Unsupported(t, "this program has no build ID")
	}
	for _, test := range []struct {
		mapping profile.Mapping
		want    string
		has     bool
	}{
		{m, "fulgur/internal/capture/naming.landmark", true},
		{unproven, start, false},
		{other, start, true},
	} {
		p := partly(test.mapping)
		if Unnamed(p) || HasUnnamed(p) != test.has {
			t.Errorf("build ID %q: got Unnamed %v, HasUnnamed %v; want false, %v", test.mapping.BuildID, Unnamed(p), HasUnnamed(p), test.has)
		}
		r := Resolver{Profile: p, Finder: debugfiletest.NewFinder(t), Proven: true}
		p, err := r.Resolve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range p.AppendFrames(nil, p.Samples[0].Stack) {
			names = append(names, p.FrameName(f))
		}
		if !slices.Equal(names, []string{test.want, "main"}) {
			t.Errorf("build ID %q: got names %q, want %q called by main", test.mapping.BuildID, names, test.want)
		}
	}
}

// The resolved profile has the labels of its samples.
func TestResolveLabels(t *testing.T) {
	p := unresolved(t, func(*profile.Mapping) {})
	want := profile.Labels{{Key: "kind", Value: "x"}}
	p.Labels = []profile.Labels{nil, want}
	p.Tasks[p.Samples[0].Task].Labels = 1
	r := Resolver{Profile: p, Finder: debugfiletest.NewFinder(t)}
	got, err := r.Resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if labels := got.LabelsOf(got.Samples[0].Task); !slices.Equal(labels, want) {
		t.Errorf("got labels %v, want %v", labels, want)
	}
}
