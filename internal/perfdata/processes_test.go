package perfdata

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"fulgur/internal/bolt"
)

// mappedAt returns a mapping of a file.
func (ps *processes) mappedAt(t testing.TB, when uint64, pid int32, start, size, offset uint64, path string) event {
	t.Helper()
	b, err := ps.binary(Mapped{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return event{when: when, kind: eventMap, pid: pid, start: start, size: size, offset: offset, binary: b}
}

func newTestProcesses() *processes {
	return newProcesses(func(m Mapped) *bolt.Binary {
		if m.Path == "ignored" {
			return nil
		}
		return bolt.NewMapped(m.Path, "")
	})
}

// Two processes map, fork and execute at random. The judge is a list of what each address shows, at
// each time.
func TestLayouts(t *testing.T) {
	const size, steps = 64, 60
	type shown struct {
		path   string
		offset uint64
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		ps := newTestProcesses()
		var now [3][size]shown
		var past [steps + 1][3][size]shown
		for when := uint64(1); when <= steps; when++ {
			pid := int32(1 + rng.IntN(2))
			e := event{when: when, kind: eventExec, pid: pid}
			switch n := rng.IntN(20); n {
			case 0:
				now[pid] = [size]shown{}
			case 1:
				e = event{when: when, kind: eventFork, pid: pid, parent: 3 - pid}
				now[pid] = now[3-pid]
			default:
				path := fmt.Sprint(rng.IntN(4))
				if n < 6 {
					path = "ignored"
				}
				start := rng.Uint64N(size)
				e = ps.mappedAt(t, when, pid, start, rng.Uint64N(min(size-start, 20)+1), rng.Uint64N(9), path)
				for i := range e.size {
					if now[pid][start+i] = (shown{}); e.binary != nil {
						now[pid][start+i] = shown{path, e.offset + i}
					}
				}
			}
			if err := ps.add(e); err != nil {
				t.Fatal(err)
			}
			past[when] = now
		}
		if err := ps.finish(); err != nil {
			t.Fatal(err)
		}
		for when, want := range past {
			for pid := range int32(3) {
				layout := ps.layout(pid, uint64(when))
				for addr := range uint64(size) {
					var got shown
					if r, ok := layout.Find(addr); ok {
						got = shown{r.Binary.Name, r.Address(addr)}
					}
					// What replaces nothing may show before its time: no sample can be there.
					if got != want[pid][addr] && want[pid][addr] != (shown{}) {
						t.Fatalf("process %d, time %d, address %d: got %v, want %v", pid, when, addr, got, want[pid][addr])
					}
				}
			}
		}
	}
}

// A JIT compiler places tens of thousands of functions one over the other, and perf inject --jit
// makes a file of each.
func TestManyFunctions(t *testing.T) {
	ps := newTestProcesses()
	const functions, places = 60_000, 15_000
	for i := range uint64(functions) {
		if err := ps.add(ps.mappedAt(t, i, 1, i%places*64, 96, 0, fmt.Sprint("jitted-", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := ps.finish(); err != nil {
		t.Fatal(err)
	}
	for i := uint64(0); i < functions; i += 997 {
		if r, ok := ps.layout(1, i).Find(i%places*64 + 10); !ok || r.Binary.Name != fmt.Sprint("jitted-", i) {
			t.Fatalf("function %d: got %v", i, r)
		}
	}
}

// A hostile file may name more mappings than fit into memory.
func TestManyMappings(t *testing.T) {
	ps := newTestProcesses()
	ps.kept = maxHistory - 1000
	for i := range uint64(1000) {
		if err := ps.applyOne(ps.mappedAt(t, i, 1, i<<16, 0x1000, 0, "a")); err != nil {
			if !errors.Is(err, errHistory) {
				t.Error(err)
			}
			return
		}
	}
	t.Error("got no error of too many mappings")
}
