package unwindmap

import (
	"testing"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
)

// FuzzLoader maps code, and forks, executes and ends processes in arbitrary order. A
// process's layout in the kernel must always have only mappings of that process, and all
// memory must be free after all processes have ended.
func FuzzLoader(f *testing.F) {
	f.Add([]byte{0, 1, 4, 17, 2, 2, 8, 33, 6, 3, 5, 1})
	f.Add([]byte{0, 1, 1, 1, 4, 1, 20, 1, 36, 1, 2, 1, 2, 17, 3, 2, 6, 0, 5, 1, 6, 0, 0, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		c := config{
			memory: 16 * pageCost, mappingsEach: 6,
			sizes: sizes{pages: 32, rules: 64, mappings: 40, processes: 6},
		}
		k := newFakeKernel(c)
		l := newLoader(k, c)
		defer l.Close()
		world := map[int][]process.Mapping{} // current mappings by process
		image := uint64(0)
		for ; len(ops) >= 2; ops = ops[2:] {
			op, pid, arg := ops[0]%12, int(ops[1]%8)+1, uint64(ops[0]/12)
			switch maps, lives := world[pid]; {
			case op == 0: // starts and is requested
				image++
				l.Ended(pid)
				world[pid] = with(nil, uint64(pid)<<20+arg<<12)
				l.Request(pid, image, world[pid])
			case !lives:
			case op == 1: // maps code
				world[pid] = with(maps, uint64(pid)<<20+arg<<12)
				l.Remap(pid, world[pid])
			case op == 2: // unmaps code
				world[pid] = with(nil, maps[0].Start)
				l.Remap(pid, world[pid])
			case op == 3: // forks
				child := int(arg%8) + 1
				if _, exists := world[child]; exists {
					continue
				}
				world[child] = maps
				image++
				k.fork(pid, child, image)
				l.Forked(pid, child, monotonic.Now())
			case op == 4: // forks and changes before the fork is reported
				child := int(arg%8) + 1
				if _, exists := world[child]; exists {
					continue
				}
				before := monotonic.Now()
				image++
				k.fork(pid, child, image)
				world[pid] = with(maps, uint64(pid)<<20+0x80000)
				l.Remap(pid, world[pid])
				l.Settled(before)
				world[child] = world[pid] // the mappings at the time of the fork
				l.Forked(pid, child, before)
			case op == 5: // ends
				delete(world, pid)
				l.Ended(pid)
			case op == 6:
				l.Settled(monotonic.Now() + 1)
				l.working.Wait()
			case op == 7: // forks, reported before the kernel side has the child
				child := int(arg%8) + 1
				if _, exists := world[child]; exists {
					continue
				}
				at := monotonic.Now()
				l.Forked(pid, child, at)
				l.Remap(pid, with(nil, uint64(pid)<<20+0x90000))
				l.Remap(pid, maps) // same mappings, other layout
				l.Settled(monotonic.Now() + 1)
				l.working.Wait()
				image++
				k.fork(pid, child, image)
				world[child] = maps
				l.Settled(monotonic.Now() + 1)
				l.working.Wait()
				l.InheritLayouts()
				if k.processes[child] != (entry{}) && !l.Known(child) {
					t.Fatalf("the loader does not know process %d, which has a layout", child)
				}
			case op == 8: // forks, and the record is lost
				child := int(arg%8) + 1
				if _, exists := world[child]; exists {
					continue
				}
				image++
				k.fork(pid, child, image)
				world[child] = maps
				l.Reset()
			case op == 9: // forks, and ends before the kernel side has the child
				child := int(arg%8) + 1
				if _, exists := world[child]; exists {
					continue
				}
				l.Forked(pid, child, monotonic.Now())
				l.InheritLayouts()
				image++
				k.fork(pid, child, image)
				world[child] = maps
				delete(world, pid)
				l.Ended(pid)
			case op == 10: // becomes a daemon: its child forks and ends before the forks are reported
				child := int(arg%8) + 1
				between := child%8 + 1
				if _, exists := world[child]; exists {
					continue
				}
				if _, exists := world[between]; exists {
					continue
				}
				image += 2
				k.fork(pid, between, image-1)
				k.fork(between, child, image)
				delete(k.processes, between)
				world[child] = maps
				at := monotonic.Now()
				l.Forked(pid, between, at)
				l.Forked(between, child, at)
			default: // is requested again
				l.Request(pid, image, maps)
			}
			if ops[1]&128 == 0 || len(l.stale) > 0 {
				l.InheritLayouts()
			}
			checkWorld(t, k, l, world)
		}
		for pid := range 10 {
			l.Ended(pid)
		}
		l.InheritLayouts()
		for range 2 {
			l.Settled(monotonic.Now() + childTimeout + 1) // gives up on children without an entry
			l.working.Wait()
		}
		if len(l.room.free) != 1 || l.room.free[0] != (span{0, c.mappings}) || len(k.processes) != 0 || len(l.layouts) != 0 {
			t.Fatalf("got room %v, processes %v, %d layouts left; want all room free", l.room.free, k.processes, len(l.layouts))
		}
	})
}

// with returns maps with one more mapping, sorted and without overlaps.
func with(maps []process.Mapping, start uint64) []process.Mapping {
	var list []process.Mapping
	added := process.Mapping{Start: start, Limit: start + 0x1000, Kind: process.KindAnon}
	for i, m := range maps {
		if m.Start == start {
			return maps
		}
		if m.Start > start {
			return append(append(list, added), maps[i:]...)
		}
		list = append(list, m)
	}
	return append(list, added)
}

// checkWorld checks that all mappings in a process's layout belong to that process.
func checkWorld(t *testing.T, k *fakeKernel, l *Loader, world map[int][]process.Mapping) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	for pid, e := range k.processes {
		maps, lives := world[pid]
		if !lives {
			t.Fatalf("got layout %#[2]x of process %[1]d, which does not exist", pid, e.Layout)
		}
		for _, m := range k.mappings(layoutSpan(e.Layout)) {
			held := false
			for _, w := range maps {
				held = held || w.Start <= m.Start && m.Start < w.Limit
			}
			if !held {
				t.Fatalf("process %d: got %#x in its layout, want one of its mappings %v", pid, m.Start, maps)
			}
		}
	}
}
