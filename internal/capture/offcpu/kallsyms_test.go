package offcpu

import (
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/testenv"
)

// Without kernel addresses, the programs do not reference the kernel's unwind tables, and
// the verifier accepts them.
func TestWithoutORC(t *testing.T) {
	testenv.OneKernel(t)
	spec, err := bpf.LoadOffCPU()
	if err != nil {
		t.Fatal(err)
	}
	references := func() (n int) {
		for _, program := range spec.Programs {
			for _, ins := range program.Instructions {
				if slices.Contains(probe.ORCSymbols, ins.Reference()) {
					n++
				}
			}
		}
		return n
	}
	if n := references(); (n > 0) != (runtime.GOARCH == "amd64") {
		t.Errorf("got %d references to unwind tables on %s, want some on amd64 alone", n, runtime.GOARCH)
	}
	probe.WithoutAddresses(spec, probe.ORCSymbols...)
	if n := references(); n != 0 {
		t.Errorf("got %d references to unwind tables, want 0", n)
	}
	testenv.Root(t)
	memlock.Lift()
	if err := adapt(spec, nil); err != nil {
		t.Fatal(err)
	}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Close()
}
