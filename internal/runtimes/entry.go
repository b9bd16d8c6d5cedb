package runtimes

import "fulgur/internal/bpf"

// Add adds the runtimes of other to an entry for the same process.
func Add(entry *bpf.RuntimeProcess, other bpf.RuntimeProcess) {
	has := func(kind Kind) bool { return other.Kinds>>kind&1 != 0 }
	if has(bpf.RuntimePython) {
		entry.Python = other.Python
	}
	if has(bpf.RuntimeV8) {
		entry.V8 = other.V8
	}
	if has(bpf.RuntimeHotSpot) {
		entry.Hotspot = other.Hotspot
	}
	if has(bpf.RuntimeRuby) {
		entry.Ruby = other.Ruby
	}
	entry.Kinds |= other.Kinds
}

// PlaceRange adds bias to a range of addresses.
func PlaceRange(r *bpf.RuntimeRange, bias uint64) {
	r.Start += bias
	r.End += bias
}
