package naming

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/jitdump"
	"fulgur/internal/symbols/jitdump/jitdumptest"
	"fulgur/internal/symbols/symbolize"
)

// Frames of JIT code have the functions of a jitdump file from the time when they were seen,
// with lines. What was not read of the file is reported.
func TestJITDumps(t *testing.T) {
	w := jitdumptest.New(1)
	w.Lines(10, 0x1000, jitdumptest.Line{Address: 0x1000, Line: 3, File: "a.x"})
	w.Load(10, 0x1000, 0x10, 1, "old")
	w.Load(20, 0x1000, 0x10, 2, "new")
	scanner := &jitdump.Scanner{}
	kept, _, err := scanner.Scan(bytes.NewReader(w.B), int64(len(w.B)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	store := stacks.NewStore(nil)
	dumps := &process.JITDumps{}
	code := stacks.CodeID(len(store.Codes))
	store.Codes = append(store.Codes, stacks.Code{Kind: stacks.CodeJIT, PID: 7, JITDumps: dumps})
	store.Ranges = append(store.Ranges, stacks.Range{})
	for i, f := range []stacks.Frame{
		{Code: code, Address: 0x1004, Epoch: 2},
		{Code: code, Address: 0x1004, Epoch: 1},
		{Code: code, Address: 0x1010, Epoch: 1, Return: true}, // the call is in the function
		{Code: code, Address: 0x1010, Epoch: 1},
	} {
		store.Frames = append(store.Frames, f)
		store.Seen[f] = []uint64{25, 15, 15, 15}[i]
	}
	cache := NewSymbolCache()
	for _, tc := range []struct {
		kept       []byte
		incomplete error
		want       []string
	}{
		{kept, nil, []string{"new", "old a.x:3", "old a.x:3", ""}},
		{nil, errors.New("the rest is missing"), []string{"", "", "", ""}}, // the cache is of other contents
	} {
		names := New(store, debugfiletest.NewFinder(t), symbolize.Options{})
		names.Cache = cache
		names.Snapshots = &Snapshots{jitDumps: map[*process.JITDumps]process.JITTables{dumps: {
			Tables:     []jitdump.Table{{Reader: bytes.NewReader(tc.kept), Size: int64(len(tc.kept)), Order: binary.LittleEndian}},
			Incomplete: tc.incomplete,
		}}}
		names.Symbolize(t.Context())
		var got []string
		for _, found := range names.found[len(names.found)-4:] {
			s := ""
			if len(found) > 0 {
				if s = found[0].Name; found[0].Line > 0 {
					s += " " + found[0].File + ":3"
				}
			}
			got = append(got, s)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("got %q, want %q", got, tc.want)
		}
		warnings := strings.Join(names.Warnings(), "\n")
		if warned := strings.Contains(warnings, "process 7: the rest is missing"); warned != (tc.incomplete != nil) {
			t.Errorf("%v: got warnings %q", tc.incomplete, warnings)
		}
	}
}
