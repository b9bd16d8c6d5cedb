package oncpu

import (
	"runtime"
	"testing"

	"github.com/cilium/ebpf/btf"

	"fulgur/internal/capture/probe"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/testenv"
)

// After Settle, nothing keeps the kernel's types in memory.
func TestSettle(t *testing.T) {
	testenv.Root(t)
	for name, snapshots := range map[string]bool{"with snapshots": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			freed := make(chan string, 2)
			s := loadTypes(t, snapshots, freed)
			s.Settle()
			testenv.Await(t, func() bool {
				runtime.GC()
				return len(freed) == cap(freed)
			}, func() string { return "the types are still in memory" })
			runtime.KeepAlive(s)
		})
	}
}

// loadTypes loads the programs with a cache of types. It sends to freed when the cache, and when
// the kernel's types are freed.
func loadTypes(t *testing.T, snapshots bool, freed chan string) *Source {
	types := btf.NewCache()
	kernel, err := types.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	send := func(what string) { freed <- what }
	runtime.AddCleanup(types, send, "cache")
	runtime.AddCleanup(kernel, send, "kernel")
	s, err := Load(Options{
		Specs: []perfevent.Spec{{}},
		Rate:  Rate{Period: 1},
		Options: with(func(o *probe.Options) {
			o.Types, o.Snapshots = types, snapshots
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
