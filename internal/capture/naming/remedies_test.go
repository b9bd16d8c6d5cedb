package naming

import (
	"errors"
	"fmt"
	"maps"
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
		{Path: "/srv/lib7.so", Samples: 71, Remedy: remedy},
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
