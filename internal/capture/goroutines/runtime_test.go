package goroutines

import (
	"debug/dwarf"
	"debug/elf"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/process"
	"fulgur/internal/symbols/elffile"
)

// build builds testdata/parks with a version of Go and more flags, and returns its path.
func build(t *testing.T, toolchain string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "parks")
	goOutput(t, toolchain, "testdata/parks", append(append([]string{"build", "-buildvcs=false", "-o", out}, flags...), ".")...)
	return out
}

// open opens an ELF file until the end of the test.
func open(t *testing.T, path string) *elffile.File {
	t.Helper()
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // nothing was written
	return f
}

// The places of the breakpoints are in the functions that the symbol table names, in programs with and without one,
// and for both architectures.
func TestFindRuntime(t *testing.T) {
	for _, toolchain := range strings.Split(*toolchains, ",") {
		for _, machine := range []string{"amd64", "arm64"} {
			t.Run(toolchain+" "+machine, func(t *testing.T) {
				t.Setenv("GOARCH", machine)
				whole := build(t, toolchain)
				r, err := findRuntime(open(t, whole))
				if err != nil {
					t.Fatal(err)
				}
				stripped, err := findRuntime(open(t, build(t, toolchain, "-ldflags=-s -w")))
				if err != nil {
					t.Fatal(err)
				}
				file, err := elf.Open(whole)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				symbols, err := file.Symbols()
				if err != nil {
					t.Fatal(err)
				}
				text := file.Section(".text")
				for program, name := range functions {
					found := false
					for _, s := range symbols {
						if s.Name != name {
							continue
						}
						found = true
						if start := s.Value - text.Addr + text.Offset; r.places[program] < start || r.places[program] >= start+s.Size {
							t.Errorf("%s: got a breakpoint at %#x, want one in %#x to %#x", name, r.places[program], start, start+s.Size)
						}
					}
					if !found || stripped.places[program] == 0 {
						t.Errorf("%s: symbol found: %t; place in the stripped program: %#x", name, found, stripped.places[program])
					}
				}
				if r.entry.start == 0 || len(r.own) < 500 {
					t.Errorf("got %d functions of the runtime, and goexit at %#x", len(r.own), r.entry.start)
				}
				data, err := file.DWARF()
				if err != nil {
					t.Fatal(err)
				}
				if got := offsetOf(t, data, "runtime.g", "schedlink"); got != r.release.schedlink {
					t.Errorf("got offset %d of schedlink, want %d", r.release.schedlink, got)
				}
			})
		}
	}
}

// offsetOf returns the offset of a field of a structure.
func offsetOf(t *testing.T, data *dwarf.Data, structure, field string) int {
	t.Helper()
	for r := data.Reader(); ; {
		entry, err := r.Next()
		if err != nil || entry == nil {
			t.Fatalf("no structure %s: %v", structure, err)
		}
		if entry.Tag != dwarf.TagStructType || entry.Val(dwarf.AttrName) != structure {
			continue
		}
		found, err := data.Type(entry.Offset)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found.(*dwarf.StructType).Field {
			if f.Name == field {
				return int(f.ByteOffset)
			}
		}
		t.Fatalf("%s has no field %s", structure, field)
	}
}

// testRuntime has the functions goexit at 0, runtime.main at 10, another one of the runtime at 20, and none from 30 on.
var testRuntime = &goRuntime{
	release: &releases[0],
	entry:   extent{start: 0, end: 10},
	own:     []extent{{start: 0, end: 10}, {start: 10, end: 20, user: true}, {start: 20, end: 30}},
}

func TestIsOwn(t *testing.T) {
	for name, test := range map[string]struct {
		offsets []uint64 // innermost first
		want    bool
	}{
		"a goroutine of the runtime": {[]uint64{25, 22, 5}, true},
		"without goexit":             {[]uint64{25, 22}, true},
		"main":                       {[]uint64{25, 15, 5}, false},
		"of the program":             {[]uint64{25, 35, 5}, false},
		"a finalizer":                {[]uint64{25, 35, 22, 5}, false},
		"goexit alone":               {[]uint64{5}, false},
		"no stack":                   {nil, false},
	} {
		if got := testRuntime.isOwn(test.offsets); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

// The time in which a goroutine is runnable becomes a sample of its own, the runtime's own goroutines are left out,
// and no time is lost, also if the samples are finished again.
func TestFinish(t *testing.T) {
	file := &process.File{Key: process.FileKey{Ino: 1}}
	m := &Subject{source: &Source{files: files{seen: map[process.FileKey]*goRuntime{file.Key: testRuntime}}}}
	store := &stacks.Store{
		Codes:  []stacks.Code{{Kind: stacks.CodeFile, File: file}},
		Frames: []stacks.Frame{{Address: 5}, {Address: 25}, {Address: 35}},
		// The stacks goexit, goexit;runtime and goexit;user.
		Nodes:   []stacks.Node{{}, {Frame: 0}, {Parent: 1, Frame: 1}, {Parent: 1, Frame: 2}},
		Traces:  []stacks.Trace{{Leaf: 2}, {Leaf: 3}},
		Samples: map[stacks.Sample]stacks.Values{},
	}
	runtime, user := stacks.Sample{Trace: 0, Detail: 9}, stacks.Sample{Trace: 1, Detail: 9, Waker: 1}
	store.Samples[runtime] = stacks.Values{Waits: 2, Sleeping: 5, OffCPU: 5}
	store.Samples[user] = stacks.Values{Waits: 3, Sleeping: 10, Runnable: 4, OffCPU: 14}
	for range 2 {
		m.Finish(store)
		want := map[stacks.Sample]stacks.Values{
			user:                          {Waits: 3, Sleeping: 10, OffCPU: 10},
			{Trace: 1, Detail: afterWait}: {Runnable: 4, OffCPU: 4},
		}
		if len(store.Samples) != len(want) {
			t.Errorf("got samples %v, want %v", store.Samples, want)
		}
		for s, v := range want {
			if store.Samples[s] != v {
				t.Errorf("%+v: got %v, want %v", s, store.Samples[s], v)
			}
		}
		if m.own != (stacks.Values{Waits: 2, Sleeping: 5, OffCPU: 5}) {
			t.Errorf("got %v of the runtime's own goroutines", m.own)
		}
	}
	if r := m.releaseOf(store, user); r.reason(9) != "select" {
		t.Errorf("got reason %q, want select", r.reason(9))
	}
}
