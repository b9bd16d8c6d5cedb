package naming

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// manyFiles maps a different file in every 64 KiB.
type manyFiles struct{ files []*process.File }

func (m manyFiles) Resolve(_ int, addr, _ uint64) process.Location {
	return process.Location{Kind: process.KindFile, File: m.files[addr>>16], Offset: addr & 0xffff}
}

// Remedies lists files without symbols by the number of affected samples, up to a limit.
func TestRemedies(t *testing.T) {
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
		}
	}
	store.Count(counts)
	lacks := Lacking{}
	lacks.Add(n)
	got := lacks.Remedies(n.finder)
	for i, line := range got {
		if before, after, ok := strings.Cut(line, " (build ID ab"); ok {
			got[i] = before + after[strings.Index(after, ")")+1:]
		}
	}
	want := []string{
		"lib7.so: no symbols, 71 samples; set DEBUGINFOD_URLS",
		"lib6.so: no symbols, 60 samples; set DEBUGINFOD_URLS (a.debug: build ID is wrong; debuginfod: b: failed; c: failed)",
		"lib5.so: no symbols, 50 samples; set DEBUGINFOD_URLS",
		"lib4.so: no symbols, 40 samples; set DEBUGINFOD_URLS",
		`\x1b[2Jevil: no symbols, 30 samples; set DEBUGINFOD_URLS`,
		"and 2 more files without symbols",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// A second window has the same files, perhaps in other containers.
	for _, s := range n.stripped {
		if s != nil {
			s.Root = "/proc/1/root"
		}
	}
	lacks.Add(n)
	if twice := lacks.Remedies(n.finder); len(twice) != len(want) || !strings.Contains(twice[0], "lib7.so") || !strings.Contains(twice[0], "142 samples") {
		t.Errorf("after two windows: got\n%s\nwant the sum for lib7.so first", strings.Join(twice, "\n"))
	}
}
