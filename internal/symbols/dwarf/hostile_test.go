package dwarf

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// repeated is a section that repeats a pattern without using memory for it.
type repeated struct {
	pattern []byte
	size    int64
	reads   atomic.Int64
}

func (s *repeated) Size() int64 { return s.size }

func (s *repeated) ReadAt(b []byte, off int64) (int, error) {
	s.reads.Add(1)
	for i := range b {
		b[i] = s.pattern[(off+int64(i))%int64(len(s.pattern))]
	}
	return len(b), nil
}

// TestHole checks that reading stops a few pages into a hole of 10 GB.
func TestHole(t *testing.T) {
	for _, section := range []string{".debug_info", ".debug_aranges"} {
		hole := &repeated{pattern: []byte{0}, size: 10 << 30}
		s := seedSections(t, "gcc5")
		if section == ".debug_info" {
			s.Info = hole
		} else {
			s.Aranges = hole
		}
		_, err := Open(s, Options{})
		var format *FormatError
		if !errors.As(err, &format) || format.Section != section || !strings.Contains(format.Problem, "zeros") {
			t.Errorf("%s: got error %v, want one about zeros", section, err)
		}
		if n := hole.reads.Load(); n > 16 {
			t.Errorf("%s: got %d reads, want at most 16", section, n)
		}
	}
}

// TestHoleInSplit is like TestHole for a file with split units.
func TestHoleInSplit(t *testing.T) {
	hole := &repeated{pattern: []byte{0}, size: 10 << 30}
	d := &Data{ctx: t.Context(), split: func(SplitUnit) (*Sections, error) { return &Sections{Name: "x.dwo", Info: hole}, nil }}
	d.main = newFile(&Sections{Name: "x"})
	_, err := d.splitUnit(&unit{file: d.main})
	var format *FormatError
	if !errors.As(err, &format) || format.File != "x.dwo" || hole.reads.Load() > 16 {
		t.Errorf("got error %v after %d reads, want one about x.dwo after at most 16", err, hole.reads.Load())
	}
}

// TestPadding finds units on both sides of a few zeros.
func TestPadding(t *testing.T) {
	s := seedSections(t, "gcc5")
	info := content(s.Info)
	zeros := make([]byte, maxPadding)
	s.Info = strings.NewReader(string(info) + string(zeros) + string(info) + string(zeros))
	d, err := Open(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if u := d.main.unitAt(uint64(len(info) + len(zeros))); u == nil || u.off != uint64(len(info)+len(zeros)) {
		t.Errorf("got %+v, want the unit after the zeros", u)
	}
}

// TestTinyUnits checks that half a million units take little memory.
func TestTinyUnits(t *testing.T) {
	const size = 6 << 20
	header := []byte{7, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8}
	entry := append([]byte{8}, append(header[1:], 0)...)
	for name, test := range map[string]struct {
		unit []byte
		want int // number of units
	}{
		"without an entry": {header, 0},
		"with an entry":    {entry, maxUnits(size)},
	} {
		info := &repeated{pattern: test.unit, size: size / int64(len(test.unit)) * int64(len(test.unit))}
		before := heap()
		d, err := Open(&Sections{Name: "tiny", Info: info}, Options{})
		after := heap()
		if n := len(d.main.headers); n != test.want {
			t.Errorf("%s: got %d units, want %d", name, n, test.want)
		}
		var format *FormatError
		if test.want > 0 && (!errors.As(err, &format) || !strings.Contains(format.Problem, "units")) {
			t.Errorf("%s: got error %v, want one about units", name, err)
		}
		// Limit for the headers and pages of the section.
		if limit := uint64(test.want*48 + 4<<20); after > before+limit {
			t.Errorf("%s: got %d bytes, want at most %d", name, after-before, limit)
		}
		runtime.KeepAlive(d)
	}
}

// heap returns the number of bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLongNames gives all names of a file a megabyte of text, which they share. They are truncated.
func TestLongNames(t *testing.T) {
	const most = 8 << 10
	for _, name := range []string{"gcc4", "gcc5", "clang4", "clang5"} {
		s := seedSections(t, name)
		text := &repeated{pattern: append(bytes.Repeat([]byte{'a'}, 1<<20-1), 0), size: 1 << 30}
		s.Str, s.LineStr = text, text
		d, err := Open(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		names, longest := 0, 0
		for _, addr := range codeAddresses(d) {
			frames, _ := d.LookupBatch([]uint64{addr})
			for _, f := range frames[0] {
				// A path has a directory in the compilation directory.
				if longest = max(longest, len(f.File)/3); f.Function != nil && f.Function.Name != "" {
					names, longest = names+1, max(longest, len(f.Function.Name))
				}
			}
		}
		if names == 0 || longest < most/3 || longest > most {
			t.Errorf("%s: got %d names of up to %d bytes, want at most %d", name, names, longest, most)
		}
	}
}

// TestMaxUnits checks that the limit allows the units of real files.
func TestMaxUnits(t *testing.T) {
	for _, test := range []struct {
		size uint64
		want int
	}{
		{0, 1 << 16},
		{1 << 20, 1 << 16},
		{64 << 20, 1 << 20},
		{10 << 30, 1 << 20},
	} {
		if got := maxUnits(test.size); got != test.want {
			t.Errorf("%d bytes: got %d units, want %d", test.size, got, test.want)
		}
	}
}

// TestContext ends the context of Open and of a lookup, which return partial results.
func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := seedSections(t, "gcc5")
	d, err := Open(s, Options{Context: ctx})
	if err != nil {
		t.Fatal(err)
	}
	addrs := codeAddresses(d)
	cancel()
	got, err := d.LookupBatch(addrs)
	if len(got) != len(addrs) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %d results for %d addresses, error %v; want all, context.Canceled", len(got), len(addrs), err)
	}
	if d, err := Open(s, Options{Context: ctx}); d == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, error %v; want data, context.Canceled", d, err)
	}
}

// TestContextWhileReading ends the context while huge sections are read.
func TestContextWhileReading(t *testing.T) {
	const size = 1 << 50
	empty := []byte{7, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8}
	set := []byte{12, 0, 0, 0, 2, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0}
	for name, s := range map[string]*Sections{
		"units":      {Info: &repeated{pattern: empty, size: size}},
		"bad units":  {Info: &repeated{pattern: []byte{7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 8}, size: size}},
		"shared":     {Alt: &Sections{Info: &repeated{pattern: empty, size: size}}},
		"range sets": {Aranges: &repeated{pattern: set, size: size}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		for _, sec := range []*Section{&s.Info, &s.Aranges} {
			if *sec != nil {
				*sec = &canceling{Section: *sec, cancel: cancel}
			}
		}
		if s.Alt != nil {
			s.Alt.Info = &canceling{Section: s.Alt.Info, cancel: cancel}
		}
		if _, err := Open(s, Options{Context: ctx}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got error %v, want %v", name, err, context.Canceled)
		}
		cancel()
	}
}

// canceling is a section that ends a context at its 100th read.
type canceling struct {
	Section
	cancel context.CancelFunc
	reads  int
}

func (s *canceling) ReadAt(b []byte, off int64) (int, error) {
	if s.reads++; s.reads == 100 {
		s.cancel()
	}
	return s.Section.ReadAt(b, off)
}

// TestContextBetweenUnits ends the context during the lookup in the first of two units:
// only the first returns frames.
func TestContextBetweenUnits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := seedSections(t, "gcc5")
	// The second copy of the code is at the address in .debug_aranges.
	info, aranges := content(s.Info), content(s.Aranges)
	moved := bytes.Clone(aranges)
	binary.LittleEndian.PutUint32(moved[6:], uint32(len(info)))
	const far = 1 << 40
	low := binary.LittleEndian.Uint64(moved[16:])
	binary.LittleEndian.PutUint64(moved[16:], low+far)
	s.Info = bytes.NewReader(slices.Concat(info, info))
	s.Aranges = bytes.NewReader(slices.Concat(aranges, moved))
	d, err := Open(s, Options{Context: ctx, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if first, second := d.index.find(low), d.index.find(low+far); first != 0 || second != 1 {
		t.Fatalf("got units %d and %d, want 0 and 1", first, second)
	}
	d.main.line.sec = &canceling{Section: s.Line, cancel: cancel, reads: 99}
	got, err := d.LookupBatch([]uint64{low, low + far})
	if !errors.Is(err, context.Canceled) || len(got[0]) == 0 || got[1] != nil {
		t.Errorf("got %v, error %v; want frames for the first address, context.Canceled", got, err)
	}
	if state := d.main.units[1].Load(); state != nil {
		t.Error("the second unit was read")
	}
}

// TestManyLongNames reads long names that share their text until they are truncated.
func TestManyLongNames(t *testing.T) {
	short := strings.Repeat("b", maxShort-1)
	text := append(append(bytes.Repeat([]byte{'a'}, maxString), 0), short...)
	s := newStrings(&repeated{pattern: append(text, 0), size: 1 << 30}, "crafted", ".debug_str")
	total, last := 0, 0
	const names = 2 * maxLong / maxString
	for i := range uint64(names) {
		name, err := s.at(i/1024*uint64(len(text)+1) + i%1024)
		if err != nil {
			t.Fatal(err)
		}
		total, last = total+len(name), len(name)
	}
	if most := maxLong + names*maxShort; total < maxLong || total > most || last != maxShort {
		t.Errorf("got %d bytes of names, the last of %d, want %d to %d, and %d", total, last, maxLong, most, maxShort)
	}
	if name, err := s.at(maxString + 1); err != nil || name != short {
		t.Errorf("got %d bytes and error %v, want all %d bytes of a short name", len(name), err, len(short))
	}
}
