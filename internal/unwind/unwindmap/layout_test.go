package unwindmap

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fulgur/internal/process"
	"fulgur/internal/unwind"
)

var sameMappings = cmpopts.IgnoreUnexported(mapping{})

func TestAppendMappings(t *testing.T) {
	segments := []unwind.Segment{
		{Addr: 0x401000, Offset: 0x1000, Size: 0x1800, FirstBlock: 0},
		{Addr: 0x603400, Offset: 0x3400, Size: 0x1000, FirstBlock: 8},
	}
	table := placement{segments: segments, blocks: 5000, rows: 6000}
	bare := func(start, end uint64) mapping {
		return mapping{Start: start, End: end, Rows: noTable, Fallback: ruleChain}
	}
	part := func(start, end, bias uint64, blocks uint32) mapping {
		return mapping{Start: start, End: end, Bias: bias, Blocks: blocks, Rows: 6000, Fallback: ruleChain}
	}
	first, second := uint32(5000), uint32(5000+8)
	first -= 0x401000 >> 10
	second -= 0x603400 >> 10
	for name, c := range map[string]struct {
		mapping process.Mapping
		place   placement
		want    []mapping
	}{
		"no table": {
			process.Mapping{Start: 0x10000, Limit: 0x12000}, placement{},
			[]mapping{bare(0x10000, 0x12000)},
		},
		"a segment and its padding": {
			process.Mapping{Start: 0x7f0000001000, Limit: 0x7f0000003000, Offset: 0x1000}, table,
			[]mapping{part(0x7f0000001000, 0x7f0000002800, 0x7f0000000000-0x400000, first)},
		},
		"the end of a segment": {
			process.Mapping{Start: 0x7f0000002000, Limit: 0x7f0000003000, Offset: 0x2000}, table,
			[]mapping{part(0x7f0000002000, 0x7f0000002800, 0x7f0000000000-0x400000, first)},
		},
		"a segment that begins within a page": {
			process.Mapping{Start: 0x603000, Limit: 0x605000, Offset: 0x3000}, table,
			[]mapping{part(0x603400, 0x604400, 0, second)},
		},
		"the whole file": {
			process.Mapping{Start: 0x10000000, Limit: 0x10006000}, table,
			[]mapping{
				bare(0x10000000, 0x10001000),
				part(0x10001000, 0x10002800, 0x10000000-0x400000, first),
				part(0x10003400, 0x10004400, 0x10000000-0x600000, second),
				bare(0x10004400, 0x10006000),
			},
		},
		"outside all segments": {
			process.Mapping{Start: 0x10000000, Limit: 0x10001000, Offset: 0x9000}, table,
			[]mapping{bare(0x10000000, 0x10001000)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := appendMappings(nil, c.mapping, c.place, ruleChain)
			if d := cmp.Diff(c.want, got, sameMappings); d != "" {
				t.Error("(-want +got):\n" + d)
			}
		})
	}
}

// For any segments in a file, the entries of a mapping are within it, sorted and without
// overlaps, as the walker's search requires.
func FuzzAppendMappings(f *testing.F) {
	f.Add(uint64(0x1000), uint64(0x2000), uint64(0x1000), uint64(0x1800), uint64(0x3000), uint64(0x100), uint64(0x401000))
	f.Add(uint64(0), uint64(1)<<40, uint64(5), uint64(1)<<39, uint64(3), uint64(1)<<38, uint64(1)<<62)
	f.Fuzz(func(t *testing.T, off, size, off1, size1, off2, size2, addr uint64) {
		// [unwind.Segment] limits the size of files.
		const longest = 1 << 40
		off, size = off%longest, size%longest+1
		p := placement{segments: []unwind.Segment{
			{Addr: addr, Offset: off1 % longest, Size: size1 % longest},
			{Addr: addr + longest, Offset: off2 % longest, Size: size2 % longest},
		}}
		m := process.Mapping{Start: 0x7f0000000000, Limit: 0x7f0000000000 + size, Offset: off}
		at := m.Start
		for _, got := range appendMappings(nil, m, p, ruleChain) {
			if got.Start < at || got.End <= got.Start || got.End > m.Limit {
				t.Fatalf("got %#x-%#x after %#x, want it in mapping %#x-%#x", got.Start, got.End, at, m.Start, m.Limit)
			}
			at = got.End
			if got.Rows == noTable {
				continue
			}
			link, fileOff := got.Start-got.Bias, got.Start-m.Start+m.Offset
			if !inSegment(p.segments, link, fileOff) {
				t.Fatalf("got address %#x at offset %#x, which is in no segment of %+v", link, fileOff, p.segments)
			}
		}
	})
}

func inSegment(segments []unwind.Segment, addr, off uint64) bool {
	for _, s := range segments {
		if addr-s.Addr < s.Size && addr-s.Addr == off-s.Offset {
			return true
		}
	}
	return false
}

func TestPackLayout(t *testing.T) {
	at := span{0xabcdef, 0x1234}
	word := packLayout(at, 0x56789a)
	if layoutSpan(word) != at || layoutSalt(word) != 0x56789a {
		t.Errorf("layout %#x: got %v with salt %#x, want %v with 0x56789a", word, layoutSpan(word), layoutSalt(word), at)
	}
}

func TestJoinBare(t *testing.T) {
	got := joinBare([]mapping{
		{Start: 1, End: 2, Rows: noTable, Fallback: ruleChain},
		{Start: 2, End: 3, Rows: noTable, Fallback: ruleChain},
		{Start: 3, End: 4, Rows: noTable, Fallback: ruleChainGo},
		{Start: 5, End: 6, Rows: noTable, Fallback: ruleChainGo},
		{Start: 6, End: 7, Rows: 10, Fallback: ruleChainGo},
		{Start: 7, End: 8, Rows: 10, Fallback: ruleChainGo},
	})
	want := []mapping{
		{Start: 1, End: 3, Rows: noTable, Fallback: ruleChain},
		{Start: 3, End: 4, Rows: noTable, Fallback: ruleChainGo},
		{Start: 5, End: 6, Rows: noTable, Fallback: ruleChainGo},
		{Start: 6, End: 7, Rows: 10, Fallback: ruleChainGo},
		{Start: 7, End: 8, Rows: 10, Fallback: ruleChainGo},
	}
	if d := cmp.Diff(want, got, sameMappings); d != "" {
		t.Error("(-want +got):\n" + d)
	}
}

// Mappings with a table are kept first.
func TestBound(t *testing.T) {
	list := func() []mapping {
		return []mapping{{Start: 1, Rows: noTable}, {Start: 2, Rows: 1}, {Start: 3, Rows: noTable}, {Start: 4, Rows: 1}}
	}
	for limit, want := range map[int][]uint64{4: {1, 2, 3, 4}, 3: {2, 3, 4}, 2: {2, 4}, 1: {2}} {
		got, cut := bound(list(), limit)
		var starts []uint64
		for _, m := range got {
			starts = append(starts, m.Start)
		}
		if !cmp.Equal(starts, want) || cut != (limit < 4) {
			t.Errorf("limit %d of four: got %v, cut %t; want %v", limit, starts, cut, want)
		}
	}
}

func TestExtends(t *testing.T) {
	a, b, c := mapping{Start: 1}, mapping{Start: 2}, mapping{Start: 3}
	for _, x := range []struct {
		list, old []mapping
		want      bool
	}{
		{[]mapping{a, b, c}, []mapping{a, c}, true},
		{[]mapping{a, b}, nil, true},
		{[]mapping{a, c}, []mapping{a, b}, false},
		{nil, []mapping{a}, false},
	} {
		if got := extends(x.list, x.old); got != x.want {
			t.Errorf("%v extends %v: got %t, want %t", x.list, x.old, got, x.want)
		}
	}
}

// The halves of two entries, mixed, match no process's image.
func TestSeal(t *testing.T) {
	a, b := entry{Image: 1, Layout: packLayout(span{10, 20}, 1)}, entry{Image: 1, Layout: packLayout(span{10, 20}, 2)}
	for _, e := range []entry{a, b, {}} {
		if got := unseal(e.seal()); got != e {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
	mixed := a.seal()
	mixed.Layout = b.Layout
	if got := unseal(mixed); got.Image == a.Image {
		t.Errorf("got %+[3]v for halves of %+[1]v and %+[2]v", a, b, got)
	}
}

// Addresses in two layouts do not collide in the walker's cache until all salts that do not
// overlap address bits have been used.
func TestSalts(t *testing.T) {
	const apart = 1 << (64 - addressBits)
	seen := make([]bool, 1<<saltBits)
	for n := range uint32(1 << saltBits) {
		s := salt(n)
		if word := uint64(s) << (64 - saltBits); n < apart && word<<(64-addressBits) != 0 {
			t.Fatalf("got salt %#[2]x at %[1]d, which changes addresses", n, word)
		}
		seen[s] = true
	}
	if i := slices.Index(seen, false); i >= 0 {
		t.Errorf("salt %#x is never used", i)
	}
}
