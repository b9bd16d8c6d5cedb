package v8

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"fulgur/internal/runtimes"
)

// testCodeLayout is the layout of V8 13.6, in Node.js 24.
var testCodeLayout = codeLayout{
	header: 32, deoptimize: 8, positions: 16, start: 40, flags: 52, size: 56, kindMask: 15, baseline: 10,
	inlinedCount: 1, literals: 3, shared: 7, inlinings: 8, sharedWrapper: 195, object: 192, code: 187,
	arrays: []int{193}, bytes: []int{196},
}

func init() { testLayout.codeLayout = testCodeLayout }

// array adds an array of tagged words of a type, and returns it.
func (b *builder) array(kind int, elements ...uint64) uint64 {
	return b.object(kind, append([]uint64{uint64(len(elements)) << 32}, elements...)...)
}

// bytesOf adds an array of bytes.
func (b *builder) bytesOf(contents []byte) uint64 {
	object := b.object(196, uint64(len(contents))<<32)
	b.bytes = append(b.bytes, contents...)
	b.align()
	return object
}

func (b *builder) align() {
	for len(b.bytes)%8 != 0 {
		b.bytes = append(b.bytes, 0)
	}
}

// compiled adds the code of function outer, with an inlined call of inner at code offsets
// from 10 on. inner begins at position 1 of the source.
func (b *builder) compiled(outer, inner runtimes.Identity, kind uint64) (start uint64) {
	source := func(position, call int64) int64 { return (position+1)<<1 | (call+1)<<31 }
	var table []byte
	at, previous := -1, int64(0)
	for _, e := range []struct {
		offset int
		source int64
	}{{0, source(0, -1)}, {10, source(4, 0)}} {
		table = binary.AppendUvarint(table, uint64(e.offset-at)<<1)
		table = binary.AppendVarint(table, e.source-previous)
		at, previous = e.offset, e.source
	}
	inlining := binary.LittleEndian.AppendUint64(nil, uint64(source(2, -1)))
	inlining = binary.LittleEndian.AppendUint64(inlining, 0) // function 0
	literals := b.array(193, inner.Address+1|2, outer.Address+1|2)
	wrapper := b.object(195, outer.Address+1)
	data := b.array(193, 0, 1<<32, 0, literals, 0, 0, 0, wrapper, b.bytesOf(inlining))
	positions := b.bytesOf(table)
	code := b.object(187, data, positions, 0, 0, 0, kind<<32, 100, 0)
	stream := b.object(192, code, 0, 0)
	start = stream - 1 + 32
	for range 100 {
		b.bytes = append(b.bytes, 0x90)
	}
	b.align()
	binary.LittleEndian.PutUint64(b.bytes[code-1-base+40:], start)
	return start
}

func TestInlined(t *testing.T) {
	var b builder
	outer, inner := b.function(), b.function()
	start := b.compiled(outer, inner, 12)
	baseline := b.compiled(outer, inner, 10)
	r := newReader(testLayout, &b)
	for _, c := range []struct {
		name  string
		pc    uint64
		lines []int
	}{
		{"before the inlined call", start + 9, []int{1}},
		{"inlined", start + 10, []int{3, 2}}, {"inlined, from the cache", start + 11, []int{3, 2}},
		{"after the code", start + 100, []int{0}}, {"without inlining", baseline + 10, []int{0}},
	} {
		got, _ := r.Places(runtimes.Frame{Identity: outer, Position: -1, PC: c.pc, Compiled: true})
		if len(got) != len(c.lines) {
			t.Errorf("%s: %+v", c.name, got)
			continue
		}
		for i, line := range c.lines {
			if got[i].Line != line || got[i].Function.Name != "name!" {
				t.Errorf("%s: %+v, want lines %v", c.name, got, c.lines)
			}
		}
	}
	if got, _ := r.Places(runtimes.Frame{Identity: inner, Position: -1, PC: start + 10, Compiled: true}); len(got) != 1 || got[0].Line != 0 {
		t.Errorf("code of another function: %+v", got)
	}
	// Another object before the instructions: the code was replaced.
	r.now = func() time.Time { return time.Now().Add(checkedTime) }
	binary.LittleEndian.PutUint64(b.bytes[start-32+8-base:], 0)
	if got, _ := r.Places(runtimes.Frame{Identity: outer, Position: -1, PC: start + 10, Compiled: true}); len(got) != 1 || got[0].Line != 0 {
		t.Errorf("code that was replaced: %+v", got)
	}
}

// Code of regular expressions has a name, and other code without a function has none. Failed
// searches for such code leave some for functions' code.
func TestRegexpAt(t *testing.T) {
	var b builder
	outer, inner := b.function(), b.function()
	at := func(r *reader, pc uint64) ([]runtimes.Place, bool) {
		return r.Places(runtimes.Frame{Identity: runtimes.Identity{Epoch: outer.Epoch}, Position: -1, PC: pc, Compiled: true})
	}
	codes := map[uint64]uint64{} // by kind
	for kind := range uint64(13) {
		codes[kind] = b.compiled(outer, inner, kind)
	}
	for kind, start := range codes {
		want := ""
		if kind == regexpKind || kind == laterRegexpKind {
			want = regexp
		}
		got, final := at(newReader(testLayout, &b), start+10)
		if name := firstName(got); name != want || len(got) > 1 || !final {
			t.Errorf("code of kind %d: got %+v, %t; want %q", kind, got, final, want)
		}
	}
	r := newReader(testLayout, &b)
	empty := base + uint64(len(b.bytes)) + maxBefore
	b.bytes = append(b.bytes, make([]byte, 2*maxBefore)...)
	for i := range uint64(maxMisses) {
		if got, _ := at(r, empty+8*i); len(got) != 0 {
			t.Errorf("no code: got %+v", got)
		}
	}
	if got, _ := at(r, codes[regexpKind]+10); len(got) != 0 {
		t.Errorf("after %d failed searches: got %+v", maxMisses, got)
	}
	if got, _ := r.Places(runtimes.Frame{Identity: outer, Position: -1, PC: codes[12] + 10, Compiled: true}); len(got) != 2 {
		t.Errorf("a function's code after searches for other code: got %+v, want the inlined call", got)
	}
}

// firstName returns the name of the first place, or "".
func firstName(places []runtimes.Place) string {
	if len(places) == 0 {
		return ""
	}
	return places[0].Function.Name
}

// FuzzInlined modifies the memory of a process with compiled code. The work and the number of
// functions stay bounded, and the outermost function is right.
func FuzzInlined(f *testing.F) {
	f.Add(uint16(0), []byte{}, uint16(10))
	f.Add(uint16(1000), []byte{1, 2, 3, 4, 5, 6, 7, 8}, uint16(10))
	f.Fuzz(func(t *testing.T, at uint16, change []byte, offset uint16) {
		var b builder
		outer, inner := b.function(), b.function()
		end := len(b.bytes)
		start := b.compiled(outer, inner, 12)
		copy(b.bytes[end+int(at)%(len(b.bytes)-end):], change)
		got, _ := newReader(testLayout, &b).Places(runtimes.Frame{Identity: outer, Position: -1, PC: start + uint64(offset)%200, Compiled: true})
		if n := len(got); n == 0 || n > maxDepth+1 || got[n-1].Function.Name != "name!" {
			t.Errorf("%+v", got)
		}
		if b.reads > 40*maxDepth+8*maxCandidates {
			t.Errorf("%d reads", b.reads)
		}
	})
}

// The garbage collector moves a function: its code points to the new place.
func TestInlinedMoved(t *testing.T) {
	var b builder
	outer, inner := b.function(), b.function()
	start := b.compiled(outer, inner, 12)
	r := newReader(testLayout, &b)
	frame := runtimes.Frame{Identity: outer, Position: -1, PC: start + 10, Compiled: true}
	if got, _ := r.Places(frame); len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	moved := b.function()
	for at := 0; at < len(b.bytes); at += word {
		if w := b.bytes[at:]; binary.LittleEndian.Uint64(w) == outer.Address+1 {
			binary.LittleEndian.PutUint64(w, moved.Address+1)
		}
	}
	frame.Identity = moved
	if got, _ := r.Places(frame); len(got) != 2 {
		t.Errorf("%+v after the function moved", got)
	}
}

// Failed searches for code are not repeated for some time, and limited in number, also if they end
// at the beginning of the memory, as in the first functions of WebAssembly.
func TestMisses(t *testing.T) {
	for name, pc := range map[string]uint64{"no code": base + 1<<19, "memory begins": base + 1<<15} {
		t.Run(name, func(t *testing.T) {
			var b builder
			id := b.function()
			b.bytes = append(b.bytes, make([]byte, 1<<20)...)
			r := newReader(testLayout, &b)
			now := time.Unix(0, 0)
			r.now = func() time.Time { return now }
			search := func(n int) int {
				before := b.reads
				for i := range n {
					r.Places(runtimes.Frame{Identity: id, Position: -1, PC: pc + uint64(i), Compiled: true})
				}
				return b.reads - before
			}
			if first, again := search(1), search(1); again >= first || again != 0 {
				t.Errorf("%d reads, %d again", first, again)
			}
			search(maxMisses)
			if n := search(100 * maxMisses); n != 0 {
				t.Errorf("%d reads after %d failed searches", n, maxMisses)
			}
			now = now.Add(missesTime)
			if n := search(1); n == 0 {
				t.Error("no search later")
			}
		})
	}
}

// The size of cached lines and tables is limited. Scripts have lines even beyond the limit.
func TestKept(t *testing.T) {
	var b builder
	r := newReader(testLayout, &b)
	for range 8 {
		id := b.function()
		if got, _ := r.Places(runtimes.Frame{Identity: id, Position: -1}); len(got) != 1 || got[0].Function.FirstLine != 2 {
			t.Errorf("%+v", got)
		}
		r.keep(maxKept / 3)
		if r.kept > maxKept {
			t.Errorf("%d bytes kept", r.kept)
		}
	}
	if len(r.functions) > 3 {
		t.Errorf("%d functions kept", len(r.functions))
	}
}

// slow is the memory of a process that does not respond for a while.
type slow struct {
	*builder
	silent bool
}

var errNoAnswer = errors.New("no answer")

func (s *slow) Read(b []byte, addr uint64) error {
	if s.silent {
		return errNoAnswer
	}
	return s.builder.Read(b, addr)
}

// Places is not final while the process does not respond. As soon as it does, Places is
// complete.
func TestPlacesNoAnswer(t *testing.T) {
	var b builder
	outer, inner := b.function(), b.function()
	start := b.compiled(outer, inner, 12)
	memory := &slow{builder: &b}
	r := newReader(testLayout, memory)
	frame := runtimes.Frame{Identity: outer, Position: -1, PC: start + 10, Compiled: true}
	if _, final := r.Places(runtimes.Frame{Identity: outer, Position: -1}); !final {
		t.Error("not final although the process responded")
	}
	memory.silent = true
	for range 2 * maxMisses {
		if got, final := r.Places(frame); len(got) != 1 || final {
			t.Fatalf("%+v, final: %v, without an answer", got, final)
		}
	}
	if _, final := r.Places(runtimes.Frame{Identity: inner, Position: -1}); final {
		t.Error("final without an answer")
	}
	memory.silent = false
	if got, final := r.Places(frame); len(got) != 2 || !final {
		t.Errorf("%+v, final: %v", got, final)
	}
}

// Cached code with inlined functions costs no reads.
func TestInlinedAgain(t *testing.T) {
	var b builder
	outer, inner := b.function(), b.function()
	start := b.compiled(outer, inner, 12)
	r := newReader(testLayout, &b)
	now := time.Now()
	r.now = func() time.Time { return now }
	for i := range uint64(20) {
		before := b.reads
		if got, final := r.Places(runtimes.Frame{Identity: outer, Position: -1, PC: start + 10 + i, Compiled: true}); len(got) != 2 || !final {
			t.Errorf("%+v, final: %v", got, final)
		}
		if n := b.reads - before; i > 0 && n > 0 {
			t.Errorf("%d reads for known code", n)
		}
	}
}
