package oncpu

import (
	"os"
	"testing"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// A full map of remapped processes drops exited ones to make room, and counts remaps for
// which there is none.
func TestRemapsFull(t *testing.T) {
	testenv.Root(t)
	h := start(t, Options{Options: roomy},
		target.Target{CPUs: []int{0}}, Rate{Frequency: 1})
	const noProcess = 1 << 23 // above the highest pid there can be
	room := int(h.Maps[bpf.MapRemaps].MaxEntries())
	for i := range room {
		if err := h.Remap(noProcess + i); err != nil {
			t.Fatal(err)
		}
	}
	swept := time.Now() // the call above
	for range 2 {
		if err := h.Remap(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	var n uint32
	if err := h.Maps[bpf.MapRemaps].Lookup(uint32(os.Getpid()), &n); err != nil || n != 2 {
		t.Errorf("got epoch %d, %v; want 2", n, err)
	}
	for i := range room { // too soon for another sweep
		if err := h.Remap(noProcess + i); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := h.Stats()
	if time.Since(swept) < time.Second && stats.Losses[profile.LossRemaps] != 1 || err != nil {
		t.Errorf("got %d lost remaps, want 1: %v", stats.Losses[profile.LossRemaps], err)
	}
}
