package hotspot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
)

// memory has bytes from an address on.
type memory struct {
	start uint64
	b     []byte
}

func (m memory) Read(b []byte, addr uint64) error {
	if addr < m.start || addr-m.start > uint64(len(m.b)) || uint64(len(b)) > uint64(len(m.b))-(addr-m.start) {
		return io.ErrUnexpectedEOF
	}
	copy(b, m.b[addr-m.start:])
	return nil
}

// layout25 is the layout of Temurin 25.
func layout25() *layout {
	return &layout{
		version: 25, blobName: 8, blobSize: 24, code: 36, codeOffset: true, nmethodSize: 224, nmethodMethod: 80, compileID: 212,
		scopesPCs: 196, scopesData: 200, scopesEnd: 160, immutable: 96, mutable: 16, mutableSize: 48, relocations: 28, pcDescSize: 16,
		methodConst: 8, constPool: 8, constWords: 24, constFlags: 28, constCode: 34, constName: 36, constID: 40, constLen: 56, hasLines: 1,
		poolHolder: 24, poolTags: 8, poolLength: 60, poolSource: 54, poolSize: 72, klassName: 24, klassPool: 224, klassMethods: 400,
		symbolLength: 4, symbolBody: 6, arrayBytes: 4, arrayMethods: 8, klassRead: 408, klassID: 192, klassIDShift: 16,
	}
}

// FuzzPlaces reads methods and blobs in arbitrary memory.
func FuzzPlaces(f *testing.F) {
	const start = 0x10000
	f.Add([]byte("seed"), uint64(start), uint32(0), uint64(start))
	f.Add(bytes.Repeat([]byte{0, 0, 1, 0, 0, 0, 0, 0}, 200), uint64(start), uint32(1), uint64(start+8))
	f.Fuzz(func(t *testing.T, b []byte, addr uint64, check uint32, pc uint64) {
		l := layout25()
		r := newReader(l, memory{start, b})
		for _, c := range []uint32{check, check | 1} {
			for range 2 {
				places, _ := r.Places(runtimes.Frame{Identity: runtimes.Identity{Address: addr, Check: c}, PC: pc, Position: int(pc & 0xffff)})
				for _, p := range places {
					if p.Function.Name == "" {
						t.Error("a function without a name")
					}
				}
			}
		}
		// As if the check matched.
		if m, err := r.current(addr); err == nil && m.code.Name == "" {
			t.Error("a method without a name")
		}
		_, _ = r.symbol(addr)
	})
}

// FuzzForged reads methods and blobs in arbitrary memory, with arbitrary offsets.
func FuzzForged(f *testing.F) {
	const start = 0x10000
	f.Add(bytes.Repeat([]byte{1, 2, 3, 4}, 30), bytes.Repeat([]byte{0, 0, 1, 0, 0, 0, 0, 0}, 200), false)
	// A blob's name is outside the bytes that are read from the blob.
	f.Add(append([]byte{52, 2, 2, 0, 2, 50}, bytes.Repeat([]byte{2}, 60)...), bytes.Repeat([]byte{8, 0, 1, 0, 0, 0, 0, 0}, 200), true)
	f.Fuzz(func(t *testing.T, offsets, b []byte, old bool) {
		d := &description{fields: map[string]int{}, sizes: map[string]int{"PcDesc": pcDescSize}, constants: map[string]int{}}
		version := 17
		if !old {
			version = 25
			d.fields["nmethod._immutable_data"] = 8
		}
		l, missing := newLayout(d, version)
		for missing != "" && len(offsets) > 0 {
			values, value := d.sizes, map[string]int{"nmethod": 1000, "HeapBlock": 16}[missing]
			if value == 0 {
				value = 200
			}
			switch {
			case strings.Contains(missing, "::"):
				values, value = d.constants, 1
			case strings.Contains(missing, "."):
				values, value = d.fields, 4*int(offsets[0])
			}
			if _, ok := values[missing]; ok {
				return // invalid
			}
			values[missing], offsets = value, offsets[1:]
			l, missing = newLayout(d, version)
		}
		if missing != "" {
			return
		}
		r := newReader(l, memory{start, b})
		for i := 0; i < len(b); i += 8 {
			if m, err := r.current(start + uint64(i)); err == nil && m.code.Name == "" {
				t.Error("a method without a name")
			}
			if check, _, err := r.checkBlob(start + uint64(i)); err == nil {
				r.Places(runtimes.Frame{Identity: runtimes.Identity{Address: start + uint64(i), Check: check}, PC: start})
			}
		}
		if r.bytes > maxKept {
			t.Errorf("%d bytes are kept", r.bytes)
		}
	})
}

// A process cannot make the reader cache arbitrarily many tables.
func TestKeepsLimited(t *testing.T) {
	l := layout25()
	r := newReader(l, memory{})
	for i := range 3 * maxKept / maxSection {
		r.keep(maxSection)
		r.nmethods[identity{address: uint64(i)}] = &nmethod{pcs: nil}
	}
	if r.bytes > maxKept || len(r.nmethods) > maxKept/maxSection+1 {
		t.Errorf("%d nmethods of %d bytes are kept, want at most %d bytes", len(r.nmethods), r.bytes, maxKept)
	}
}

// FuzzTables reads tables in arbitrary memory.
func FuzzTables(f *testing.F) {
	const start = 0x10000
	f.Add([]byte("seed"), uint8(3))
	f.Add(bytes.Repeat([]byte{48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}, 600), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		addresses := map[string]uint64{}
		for i, name := range tableSymbols {
			addresses[name] = start + uint64(i)*uint64(step)
		}
		var entry bpf.RuntimeProcess
		padded := make([]byte, max(1<<14, len(b)))
		copy(padded, b)
		_, err := open(&entry, tables{pages: pages{memory: memory{start, padded}}, addresses: addresses})
		if err == nil {
			t.Error("found a JVM in arbitrary bytes")
		}
	})
}

// Stubs have the names of their blobs, except for stubs that return to frames in the heap.
func TestStubs(t *testing.T) {
	const start, text = 0x10000, 0x10000 + 256
	l := layout25()
	for name, want := range map[string]string{
		"StubRoutines (initialstubs)":       "StubRoutines (initialstubs)",
		"I2C/C2I adapters":                  "I2C/C2I adapters",
		"StubRoutines (continuation stubs)": heapFrames, // 21
		"StubRoutines (continuationstubs)":  heapFrames, // 25
	} {
		b := make([]byte, 2*pageSize)
		binary.LittleEndian.PutUint64(b[l.blobName:], text)
		copy(b[text-start:], name)
		r := newReader(l, memory{start, b})
		check, _, err := r.checkBlob(start)
		if err != nil {
			t.Fatal(err)
		}
		id := runtimes.Identity{Address: start, Check: check}
		places, final := r.Places(runtimes.Frame{Identity: id})
		if len(places) != 1 || !final || places[0].Function.Name != want {
			t.Errorf("%s: got %+v, %t, want %s", name, places, final, want)
		}
		id.Check += 2
		if places, final := r.Places(runtimes.Frame{Identity: id}); len(places) != 0 || final {
			t.Errorf("%s: got %+v for another check", name, places)
		}
	}
}

// A JVM that has not started has no version yet.
func TestNotReady(t *testing.T) {
	d := &description{
		tables:  tables{pages: pages{memory: memory{0x1000, make([]byte, 64)}}},
		statics: map[string]uint64{"CodeCache._low_bound": 0x1000, "CodeCache._high_bound": 0x1000, "CodeCache._heaps": 0x1000, "AbstractInterpreter._code": 0x1000},
		fields:  map[string]int{},
	}
	for _, name := range []string{
		"GrowableArrayBase._len", "GrowableArray<int>._data", "CodeHeap._memory", "CodeHeap._segmap", "CodeHeap._log2_segment_size",
		"VirtualSpace._low_boundary", "VirtualSpace._high_boundary", "StubQueue._stub_buffer", "StubQueue._buffer_limit",
	} {
		d.fields[name] = 0
	}
	var entry bpf.RuntimeProcess
	if err := layout25().place(d, &entry); !errors.Is(err, runtimes.ErrNotReady) {
		t.Errorf("got %v, want %v", err, runtimes.ErrNotReady)
	}
}
