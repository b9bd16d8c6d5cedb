package unwindmap

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/testenv"
)

// Walks look for runtimes once a process has one. A full map is an error that says so.
func TestRuntimes(t *testing.T) {
	testenv.EveryKernel(t)
	l := open(t, Options{Few: true})
	runtimes := l.Runtimes()
	for i, want := range []uint32{0, 1} {
		var got uint32
		if err := l.maps.objects.RuntimeAny.Lookup(uint32(0), &got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("after %d processes: got %d, want %d", i, got, want)
		}
		if err := runtimes.Put(i+1, bpf.RuntimeProcess{Image: 7}); err != nil {
			t.Fatal(err)
		}
	}
	var got bpf.RuntimeProcess
	if err := l.maps.objects.RuntimeProcesses.Lookup(uint32(2), &got); err != nil || got.Image != 7 {
		t.Errorf("got %+v, %v; want the process", got, err)
	}
	var err error
	for pid := 3; err == nil && pid <= int(fewSizes.runtimes)+1; pid++ {
		err = runtimes.Put(pid, bpf.RuntimeProcess{})
	}
	if err == nil || !strings.Contains(err.Error(), "more than 2048 processes have a language runtime") {
		t.Errorf("a full map: got %v", err)
	}
}

// Walks look for runtimes once a program has one. A new program takes the place of the one that was
// set the longest ago.
func TestPutProgram(t *testing.T) {
	testenv.EveryKernel(t)
	l := open(t, Options{Few: true})
	runtimes, programs := l.Runtimes(), l.maps.objects.RuntimePrograms
	put := func(key, end uint64) {
		t.Helper()
		if err := runtimes.PutProgram(key, bpf.RuntimeProgram{End: end}); err != nil {
			t.Fatal(err)
		}
	}
	most := uint64(programs.MaxEntries())
	for key := range most {
		put(key, key)
	}
	put(0, 0)      // again
	put(1, 100)    // changed
	put(most, 200) // instead of 2
	var looks uint32
	if err := l.maps.objects.RuntimeAny.Lookup(uint32(0), &looks); err != nil || looks != 1 {
		t.Errorf("got %d, error %v; want walks that look for runtimes", looks, err)
	}
	var got bpf.RuntimeProgram
	for key, end := range map[uint64]uint64{0: 0, 1: 100, 3: 3, most - 1: most - 1, most: 200} {
		if err := programs.Lookup(key, &got); err != nil || got.End != end {
			t.Errorf("program %d: got %+v, error %v; want End %d", key, got, err, end)
		}
	}
	if err := programs.Lookup(uint64(2), &got); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("got error %v for the oldest program, want none", err)
	}
}

// A new entry for the same process image keeps what the kernel side counted, so that the limits on
// the process hold.
func TestPutLabels(t *testing.T) {
	testenv.EveryKernel(t)
	l := open(t, Options{Few: true})
	runtimes, processes := l.Runtimes(), l.maps.objects.LabelProcesses
	for _, step := range []struct {
		put    bpf.LabelProcess
		stacks uint64
	}{
		{bpf.LabelProcess{Image: 7, Slot: 1}, 0},
		{bpf.LabelProcess{Image: 7, Slot: 2}, 100},
		{bpf.LabelProcess{Image: 8, Slot: 2}, 0},
	} {
		if err := runtimes.PutLabels(5, step.put); err != nil {
			t.Fatal(err)
		}
		var got bpf.LabelProcess
		if err := processes.Lookup(uint32(5), &got); err != nil {
			t.Fatal(err)
		}
		if got.Image != step.put.Image || got.Slot != step.put.Slot || got.Stacks != step.stacks || got.Sent.Bytes != step.stacks {
			t.Errorf("got %+v, want %+v with %d stacks and bytes", got, step.put, step.stacks)
		}
		got.Stacks, got.Sent.Bytes = 100, 100 // as the kernel side does
		if err := processes.Put(uint32(5), got); err != nil {
			t.Fatal(err)
		}
	}
}
