package runtimes

import (
	"slices"
	"testing"

	"fulgur/internal/bpf"
)

// Groups follow the native frames whose part of the stack has their entry, or those of the interpreter's function.
func TestMerge(t *testing.T) {
	const eval = 0x5000
	s := Stack{Interpreter: bpf.RuntimeRange{Start: eval, End: eval + 0x100}}
	frame := func(address uint64) { s.Add(bpf.RuntimePython, address, 1, 2) }
	words := func(addresses ...uint64) (w []uint64) {
		for i, a := range addresses {
			entered := uint64(0)
			if i == 0 {
				entered = bpf.FrameEntered
			}
			w = append(w, 1<<bpf.FrameRuntimeShift|uint64(bpf.RuntimePython)<<bpf.FrameKindShift|a, 1<<32|2|entered)
		}
		return w
	}
	native := []uint64{0x1000, eval + 0x20, 0x2000, eval + 0x30, 0x3000}
	sps := []uint64{100, 200, 300, 400, 500, 600}
	tests := []struct {
		name string
		make func()
		sps  []uint64
		want []uint64
	}{
		{"no frames", func() {}, sps, native},
		{"by entry", func() { frame(1); frame(2); s.Group(250); frame(3); s.Group(450) }, sps, slices.Concat(
			[]uint64{0x1000, eval | bpf.FrameExact}, words(1, 2), []uint64{0x2000, eval | bpf.FrameExact}, words(3), []uint64{0x3000})},
		{"by function", func() { frame(1); s.Group(0); frame(2); s.Group(0) }, sps, slices.Concat(
			[]uint64{0x1000, eval | bpf.FrameExact}, words(1), []uint64{0x2000, eval | bpf.FrameExact}, words(2), []uint64{0x3000})},
		{"two in one native frame, the first without frames", func() { s.Group(210); frame(1); s.Group(290) }, sps, slices.Concat(
			[]uint64{0x1000, eval | bpf.FrameExact}, words(1), native[2:])},
		{"no native frame", func() { frame(1); s.Group(1000) }, sps, slices.Concat(native, []uint64{words(1)[0], words(1)[1] &^ bpf.FrameEntered})},
		{"unknown end of the last frame", func() { frame(1); s.Group(450) }, sps[:4], slices.Concat(native, []uint64{words(1)[0], words(1)[1] &^ bpf.FrameEntered})},
	}
	for _, test := range tests {
		s.Words, s.Groups = nil, nil
		test.make()
		if got := Merge(nil, native, test.sps, []Stack{s}); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %#x, want %#x", test.name, got, test.want)
		}
	}
}
