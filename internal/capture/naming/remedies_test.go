package naming

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// manyFiles maps a different file in every 64 KiB.
type manyFiles struct{ files []*process.File }

func (m manyFiles) Resolve(_ int, addr, _ uint64) process.Location {
	return process.Location{Kind: process.KindFile, File: m.files[addr>>16], Offset: addr & 0xffff}
}

// Stripped lists files without symbols by the number of affected samples, up to a limit.
func TestStripped(t *testing.T) {
	m := manyFiles{}
	for i := range 8 {
		m.files = append(m.files, &process.File{Path: fmt.Sprintf("/srv/lib%d.so", i)})
	}
	m.files[3].Path = "/srv/\x1b[2Jevil"
	at := func(file, offset uint64) uint64 { return file<<16 + offset }
	const unnamed, hasName = 0x10, 0x20
	var traces []stackstest.Trace
	counts := map[stacks.Key]stacks.Values{}
	sample := func(samples uint64, user ...uint64) {
		id := uint64(len(traces) + 1)
		traces = append(traces, stackstest.Trace{ID: id, PID: 1, User: user, End: stackstest.Ended})
		counts[stacks.Key{ID: id}] = stacks.Values{samples}
	}
	for file := uint64(1); file < 8; file++ {
		sample(10*file, at(file, unnamed))
	}
	// A sample with two frames in one file, one with a name, counts once.
	sample(1, at(7, unnamed), at(1, unnamed), at(7, unnamed+1), at(7, hasName))
	sample(1000, at(1, hasName), at(0, unnamed)) // not known to lack symbols
	store := stackstest.NewStore(t, m, traces...)
	found := map[uint64][]symbolize.Frame{hasName: {{Name: "f"}}, hasName + 1: {{Name: "f"}}}
	n := Given(store, debugfiletest.NewFinder(t), found)
	for id, code := range store.Codes {
		if code.Kind == stacks.CodeFile && code.File != m.files[0] {
			n.stripped[id] = &stripped{Stripped: debugfile.Stripped{Path: code.File.Path, BuildID: fmt.Sprintf("ab%02x", id)}}
			if code.File == m.files[6] {
				n.stripped[id].problems = []error{errors.New("a.debug: build ID is wrong"), errors.New("debuginfod: b: failed\nc: failed")}
			}
			if code.File == m.files[1] { // not among the files that are listed
				n.stripped[id].problems = []error{errors.New("debuginfod: b: failed\nc: failed")}
			}
		}
	}
	store.Count(counts)
	lacks := Lacking{}
	lacks.Add(n, maps.All(store.Samples))
	got := lacks.Stripped(n.finder)
	for i := range got.Files {
		if f := &got.Files[i]; strings.HasPrefix(f.BuildID, "ab") {
			f.BuildID = ""
		}
	}
	const remedy = "set DEBUGINFOD_URLS"
	want := profile.StrippedFiles{Omitted: 2, Files: []profile.Stripped{
		{Path: "/srv/lib7.so", Exports: true, Samples: 71, Remedy: remedy},
		{Path: "/srv/lib6.so", Samples: 60, Remedy: remedy},
		{Path: "/srv/lib5.so", Samples: 50, Remedy: remedy},
		{Path: "/srv/lib4.so", Samples: 40, Remedy: remedy},
		{Path: "/srv/\x1b[2Jevil", Samples: 30, Remedy: remedy},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wantProblems := []string{"debuginfod: b: failed; c: failed (2 files)", "a.debug: build ID is wrong"}
	if got := lacks.Problems(); !slices.Equal(got, wantProblems) {
		t.Errorf("got problems %q, want %q", got, wantProblems)
	}
	// A second window has the same files, perhaps in other containers.
	for _, s := range n.stripped {
		if s != nil {
			s.Root = "/proc/1/root"
		}
	}
	lacks.Add(n, maps.All(store.Samples))
	if twice := lacks.Stripped(n.finder); len(twice.Files) != len(want.Files) || twice.Files[0].Path != "/srv/lib7.so" || twice.Files[0].Samples != 142 {
		t.Errorf("after two windows: got %+v, want the sum for lib7.so first", twice)
	}
}

// Packages of the files that the summary lists are found ahead of it. A build is the same in all containers,
// so only one of their databases is read.
func TestFindPackages(t *testing.T) {
	const unnamed, name = 0x10, "/usr/bin/app"
	m, trace := manyFiles{}, stackstest.Trace{ID: 1, PID: 1, End: stackstest.Ended}
	for file := range uint64(8) {
		m.files = append(m.files, &process.File{Path: name})
		trace.User = append(trace.User, file<<16+unnamed)
	}
	store := stackstest.NewStore(t, m, trace)
	store.Count(map[stacks.Key]stacks.Values{{ID: 1}: {1}})
	n := Given(store, debugfiletest.NewFinder(t), nil)
	var lists []string
	for id, code := range store.Codes {
		if code.Kind != stacks.CodeFile {
			continue
		}
		container := t.TempDir()
		list := filepath.Join(container, "var", "lib", "dpkg", "info", fmt.Sprintf("app%d.list", len(lists)))
		if err := errors.Join(os.MkdirAll(filepath.Dir(list), 0o755), os.WriteFile(list, []byte(name+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		lists = append(lists, list)
		n.stripped[id] = &stripped{Stripped: debugfile.Stripped{Root: container, Path: name, BuildID: "abcd"}}
	}
	n.FindPackages()
	for _, list := range lists {
		if err := os.Remove(list); err != nil {
			t.Fatal(err)
		}
	}
	const want, none = "install app0-dbgsym or set DEBUGINFOD_URLS", "set DEBUGINFOD_URLS"
	lacks := Lacking{}
	lacks.Add(n, maps.All(store.Samples))
	if got := lacks.Stripped(n.finder); len(got.Files) != 1 || got.Files[0].Remedy != want {
		t.Errorf("got %+v, want a file with the remedy %q", got, want)
	}
	var all []debugfile.Stripped
	for _, s := range n.stripped {
		if s != nil {
			all = append(all, s.Stripped)
		}
	}
	for i, remedy := range n.finder.Remedies(all) {
		if i > 0 && remedy != none {
			t.Errorf("the database of container %d was read: got %q, want %q", i, remedy, none)
		}
	}
}

// Nothing is searched once sampling has ended.
func TestFindPackagesLate(t *testing.T) {
	n := Given(stackstest.NewStore(t, manyFiles{}), debugfiletest.NewFinder(t), nil)
	container := t.TempDir()
	info := filepath.Join(container, "var", "lib", "dpkg", "info")
	if err := errors.Join(os.MkdirAll(info, 0o755), os.WriteFile(filepath.Join(info, "app.list"), []byte("/usr/bin/app\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	file := debugfile.Stripped{Root: container, Path: "/usr/bin/app"}
	n.stripped = []*stripped{nil, {Stripped: file}}
	sampled := make(chan struct{})
	close(sampled)
	n.Ahead = sampled
	n.FindPackages()
	if err := os.RemoveAll(info); err != nil {
		t.Fatal(err)
	}
	if got := n.finder.Remedies([]debugfile.Stripped{file}); got[0] != "build it with -g, or do not strip it" {
		t.Errorf("got remedy %q, want none from a database that was not read", got[0])
	}
}
