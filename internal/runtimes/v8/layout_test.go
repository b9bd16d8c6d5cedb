package v8

import (
	"encoding/binary"
	"reflect"
	"testing"
	"unicode/utf8"

	"fulgur/internal/runtimes"
)

// numbers returns pointers to the offsets and types of a layout. They come from symbols,
// which may be forged.
func numbers(l *layout) (all []*int) {
	for _, of := range []reflect.Value{reflect.ValueOf(l).Elem(), reflect.ValueOf(&l.codeLayout).Elem()} {
		for i := range of.NumField() {
			if f := of.Field(i); f.Type() == reflect.TypeFor[int]() {
				all = append(all, (*int)(f.Addr().UnsafePointer()))
			}
		}
	}
	return all
}

// A layout with a field beyond the bytes that are read from its object is rejected.
func TestOutside(t *testing.T) {
	if class := testLayout.outside(); class != "" {
		t.Fatalf("%s in the layout of Node.js 24", class)
	}
	for name, change := range map[string]func(*layout){
		"length":     func(l *layout) { l.stringLength = 200 },
		"cons":       func(l *layout) { l.consSecond = stringSize - word + 1 },
		"resource":   func(l *layout) { l.externalResource = stringSize - word },
		"name":       func(l *layout) { l.sharedName = l.sharedSize() },
		"script":     func(l *layout) { l.scriptSource = maxScript },
		"script id":  func(l *layout) { l.kernel.ScriptId = maxScript },
		"scope":      func(l *layout) { l.scopeFirst = 0 },
		"start":      func(l *layout) { l.codeLayout.start = l.codeLayout.read() },
		"deoptimize": func(l *layout) { l.codeLayout.deoptimize = -word },
		"size":       func(l *layout) { l.codeLayout.size = maxCode },
	} {
		l := testLayout
		if change(&l); l.outside() == "" {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzLayout changes numbers of the layout and the memory, even to layouts that readLayout would
// reject. Names remain valid text, and the number of frames and of reads is bounded.
func FuzzLayout(f *testing.F) {
	f.Add([]byte{}, uint16(0), []byte{})
	f.Add([]byte{11, 200, 0, 16, 255, 255}, uint16(100), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, changes []byte, at uint16, change []byte) {
		var b builder
		outer, inner := b.function(), b.function()
		start := b.compiled(outer, inner, 12)
		copy(b.bytes[int(at)%len(b.bytes):], change)
		l := testLayout
		for all := numbers(&l); len(changes) >= 3; changes = changes[3:] {
			*all[int(changes[0])%len(all)] = int(int16(binary.LittleEndian.Uint16(changes[1:])))
		}
		r := newReader(l, &b)
		for _, id := range []runtimes.Identity{outer, inner} {
			h := heap{l, &b}
			if words, err := h.read(id.Address+1, maxShared); err == nil {
				if check, err := h.check(words); err == nil {
					id.Check = check
				}
			}
			for _, frame := range []runtimes.Frame{{Identity: id, Position: 10}, {Identity: id, Position: -1, PC: start + 10, Compiled: true}} {
				places, _ := r.Places(frame)
				if len(places) > maxDepth+1 {
					t.Errorf("got %d frames, want at most %d", len(places), maxDepth+1)
				}
				for _, p := range places {
					if !utf8.ValidString(p.Function.Name) || !utf8.ValidString(p.Function.File) || p.Line < 0 {
						t.Errorf("got %+v", p)
					}
				}
			}
		}
		if most := 4 * (40*maxDepth + 8*maxCandidates + 8*maxPieces); b.reads > most {
			t.Errorf("got %d reads, want at most %d", b.reads, most)
		}
	})
}
