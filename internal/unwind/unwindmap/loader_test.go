package unwindmap

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
)

var testConfig = config{
	memory: 64 << 20, mappingsEach: 1000,
	sizes: sizes{pages: 256, rules: 4096, mappings: 4000, processes: 50},
}

// fixture is a loader with a fake kernel, and the mappings of an ordinary process.
type fixture struct {
	*Loader
	kernel *fakeKernel
	maps   []process.Mapping
}

func newFixture(t *testing.T, c config) *fixture {
	t.Helper()
	k := newFakeKernel(c)
	f := &fixture{Loader: newLoader(k, c), kernel: k}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	table := process.NewTable(process.Options{})
	t.Cleanup(func() { _ = table.Close() })
	f.maps = table.Mappings(sleeper(t))
	if len(f.maps) < 4 {
		testenv.Skip(t, "needs a cat with libraries")
	}
	return f
}

// sleeper starts a program with a C library and returns its pid once everything is
// mapped.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "cat"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	// Once it has copied a byte, it is running.
	if _, err := in.Write([]byte{'.'}); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// settleAll waits until nothing is left to free.
func (f *fixture) settleAll(t *testing.T) {
	t.Helper()
	testenv.Await(t, func() bool {
		f.InheritLayouts()
		f.Settled(monotonic.Now() + 1)
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.retired) == 0 && !f.settling
	}, func() string { return "layouts without processes are not freed" })
}

func (f *fixture) wait(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.TimeLimit())
	defer cancel()
	f.Wait(ctx)
	if ctx.Err() != nil {
		t.Fatal("the tables are not compiled")
	}
}

// load gives a process a layout with all tables.
func (f *fixture) load(t *testing.T, pid int, image uint64, maps []process.Mapping) {
	t.Helper()
	f.Prepare(maps, math.MaxUint64)
	f.Request(pid, image, maps)
	f.wait(t)
}

// The kernel side finds the same rules as a lookup in the tables.
func TestLoader(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 7, 70, f.maps)
	if stats := f.Stats(); stats.Tables < 3 || stats.Failure != nil || stats.Files > 0 || stats.NoRoom > 0 {
		t.Errorf("got %+v, want 3 tables and no failure", stats)
	}
	if e := f.kernel.processes[7]; e.Image != 70 {
		t.Errorf("got image %d in the entry, want 70", e.Image)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, m := range f.maps {
		if m.Kind != process.KindFile {
			continue
		}
		checkMapping(t, f, 7, m, random)
	}
}

// checkMapping looks up addresses of a mapping.
func checkMapping(t *testing.T, f *fixture, pid int, m process.Mapping, random *rand.Rand) {
	t.Helper()
	r, size, err := m.File.ReaderAt()
	if err != nil {
		t.Fatal(err)
	}
	ef, err := elffile.New(r, size, m.File.Path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := unwind.Compile(ef, unwind.Options{})
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for range 3000 {
		addr := m.Start + random.Uint64N(m.Limit-m.Start)
		link, ok := ef.Address(addr - m.Start + m.Offset)
		if !ok {
			continue
		}
		want := table.Lookup(link)
		got, err := f.kernel.find(pid, addr)
		if errors.Is(err, errUnmapped) {
			continue // padding
		}
		looked++
		switch {
		case err != nil:
			t.Fatalf("%s+%#x: %v", m.File.Path, link, err)
		case want == unwind.Rule{}:
			if got != ruleNone {
				t.Fatalf("%s+%#x: got rule %d, want none", m.File.Path, link, got)
			}
		case f.kernel.rules[got] != want:
			t.Fatalf("%s+%#x: got %v, want %v", m.File.Path, link, f.kernel.rules[got], want)
		}
	}
	if looked < 1000 {
		t.Errorf("%s: got only %d lookups of a mapping", m.File.Path, looked)
	}
}

// Forked processes share a layout until one of them changes its mappings, and unused room
// is reused.
func TestLoaderFork(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	for child := 2; child < 40; child++ {
		f.kernel.fork(1, child, uint64(10*child))
		f.Forked(1, child, monotonic.Now())
	}
	f.settleAll(t)
	f.mu.Lock()
	layouts := len(f.layouts)
	f.mu.Unlock()
	if layouts != 1 {
		t.Errorf("got %d layouts, want one for all", layouts)
	}
	shared := f.kernel.processes[1].Layout

	// One process replaces a mapping, another adds one.
	replaced := append([]process.Mapping{}, f.maps...)
	replaced[1] = process.Mapping{Start: replaced[1].Start, Limit: replaced[1].Limit, Kind: process.KindAnon}
	f.Remap(2, replaced)
	top := f.maps[len(f.maps)-1].Limit
	added := func() []process.Mapping {
		return append(append([]process.Mapping{}, f.maps...), process.Mapping{Start: top, Limit: top + 0x1000, Kind: process.KindAnon})
	}
	f.Remap(3, added())
	f.Remap(4, added())
	salts := map[uint32]int{}
	for pid := 1; pid <= 4; pid++ {
		salts[layoutSalt(f.kernel.processes[pid].Layout)]++
	}
	if f.kernel.processes[1].Layout != shared || f.kernel.processes[2].Layout == shared {
		t.Error("a change of one process's mappings changed another's")
	}
	if layoutSalt(f.kernel.processes[2].Layout) == layoutSalt(shared) {
		t.Error("replacing a mapping kept the salt")
	}
	if layoutSalt(f.kernel.processes[3].Layout) != layoutSalt(shared) {
		t.Error("adding a mapping changed the salt")
	}
	if len(salts) != 3 {
		t.Errorf("got salts %v, want different ones for two processes that added to one layout", salts)
	}

	for pid := range 40 {
		f.Ended(pid)
	}
	f.settleAll(t)
	if len(f.kernel.processes) != 0 || len(f.layouts) != 0 || len(f.room.free) != 1 {
		t.Errorf("got %d processes, %d layouts, free room %v left; want none, and all room", len(f.kernel.processes), len(f.layouts), f.room.free)
	}
	if f.kernel.waits == 0 {
		t.Error("got no wait for running programs")
	}
}

// A child that was forked just before its parent's mappings changed has the old layout,
// which must not be reused before the fork is reported.
func TestLoaderForkBeforeChange(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	old := f.kernel.processes[1].Layout
	f.kernel.fork(1, 2, 20)
	before := monotonic.Now()
	f.Remap(1, f.maps[1:])
	f.Settled(before) // before the fork is reported
	f.Request(3, 30, f.maps[2:])
	f.mu.Lock()
	_, kept := f.layouts[old]
	f.mu.Unlock()
	if !kept {
		t.Fatal("a child's layout was freed")
	}
	f.Forked(1, 2, before)
	f.settleAll(t)
	if got, want := layoutSpan(f.kernel.processes[2].Layout).n, layoutSpan(f.kernel.processes[1].Layout).n; got != want {
		t.Errorf("got %d mappings of the child, want its parent's %d", got, want)
	}
}

// On a busy machine, a fork may be reported long before the kernel side has an entry for the
// child. By then, the parent may have another layout.
func TestLoaderForkLate(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	old := f.kernel.processes[1].Layout
	f.Forked(1, 2, monotonic.Now())
	f.Remap(1, f.maps[1:])
	f.Settled(monotonic.Now() + 1)
	f.working.Wait()
	f.kernel.processes[2] = entry{Image: 20, Layout: old} // read before the change
	f.InheritLayouts()
	f.settleAll(t)
	f.mu.Lock()
	_, kept := f.layouts[old]
	f.mu.Unlock()
	if !f.Known(2) || !kept || f.kernel.processes[2].Layout != old {
		t.Errorf("got known: %v, freed: %v for the child's layout; want true, false", f.Known(2), !kept)
	}

	// The loader stops waiting for a child that never gets an entry.
	f.Forked(1, 3, monotonic.Now())
	f.Settled(monotonic.Now() + childTimeout + 1)
	if len(f.children) > 0 {
		t.Errorf("still waiting for %d children", len(f.children))
	}
}

// A child may have the pid of a process whose exit has not been reported yet.
func TestLoaderForkReused(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	f.load(t, 2, 20, f.maps[1:])
	f.kernel.fork(1, 2, 30)
	f.Forked(1, 2, monotonic.Now())
	f.InheritLayouts()
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.processes[2]; p.image != 30 || p.layout != f.processes[1].layout {
		t.Errorf("got image %d and layout %+v of the child, want 30 and the parent's", p.image, p.layout)
	}
}

// Two processes may each have been forked by an earlier process with the other's pid.
func TestLoaderForkSwappedPIDs(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.load(t, 3, 30, f.maps)
	f.Forked(1, 2, monotonic.Now()) // the kernel side has no entry yet
	f.Request(2, 20, f.maps)
	delete(f.kernel.processes, 1) // its exit has not been reported yet
	f.Forked(2, 1, monotonic.Now())
	f.Forked(1, 3, monotonic.Now())
	f.InheritLayouts()
	f.kernel.fork(2, 1, 11)
	f.InheritLayouts()
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.processes[1]; p == nil || p.image != 11 || p.layout != f.processes[2].layout {
		t.Errorf("got last child %+v, want image 11 and the parent's layout", p)
	}
	if len(f.children) > 0 {
		t.Errorf("still waiting for %d children", len(f.children))
	}
}

// A child keeps its parent's layout even if the parent ends before the child's entry is read.
func TestLoaderForkParentGone(t *testing.T) {
	for name, fork := range map[string]func(f *fixture){
		"executed a program, entry made late": func(f *fixture) {
			f.Forked(1, 2, monotonic.Now())
			f.InheritLayouts() // before the kernel side has the entry
			f.kernel.fork(1, 2, 20)
			f.Ended(1)
		},
		"ended at once, as a daemon's parent": func(f *fixture) {
			f.kernel.fork(1, 3, 30)
			f.kernel.fork(3, 2, 20)
			delete(f.kernel.processes, 3)
			f.Forked(1, 3, monotonic.Now())
			f.Forked(3, 2, monotonic.Now())
			f.InheritLayouts()
			f.Ended(1)
		},
		"requested at once": func(f *fixture) {
			f.kernel.fork(1, 2, 20)
			f.Forked(1, 2, monotonic.Now())
			f.Request(2, 20, append(slices.Clone(f.maps), f.addStuckFile(1<<46)))
			f.Ended(1)
		},
		"forgotten when records were lost": func(f *fixture) {
			before := monotonic.Now()
			e := f.kernel.processes[1]
			f.Reset()
			f.kernel.processes[2] = entry{Image: 20, Layout: e.Layout} // copied before
			f.Forked(1, 2, before)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, testConfig)
			f.load(t, 1, 10, f.maps)
			fork(f)
			f.settleAll(t)
			f.mu.Lock()
			defer f.mu.Unlock()
			if e, ok := f.kernel.processes[2]; ok && f.layouts[e.Layout] == nil {
				t.Errorf("the layout %#x of the child was freed", e.Layout)
			}
		})
	}
}

// A child that executes a program needs no entry. A later entry for its pid is kept.
func TestLoaderForkExec(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	for child := 2; child <= 4; child++ {
		f.kernel.fork(1, child, uint64(10*child))
		f.Forked(1, child, monotonic.Now())
		f.Ended(child)
	}
	f.Request(3, 31, f.maps[1:])
	f.kernel.fork(1, 4, 41) // the pid has a new owner
	f.Forked(1, 4, monotonic.Now())
	f.InheritLayouts()
	for pid, image := range map[int]uint64{1: 10, 2: 0, 3: 31, 4: 41} {
		if e := f.kernel.processes[pid]; e.Image != image {
			t.Errorf("process %d: got image %d in the entry, want %d", pid, e.Image, image)
		}
		if f.Known(pid) != (image != 0) {
			t.Errorf("process %d: got known %t", pid, f.Known(pid))
		}
	}
}

// addStuckFile adds a file whose table is never compiled, and returns a mapping of it.
func (f *fixture) addStuckFile(start uint64) process.Mapping {
	m := process.Mapping{Start: start, Limit: start + 0x1000, Kind: process.KindFile, File: &process.File{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	stuck := f.file(m)
	stuck.queued, stuck.since = true, time.Now()
	f.pending = append(f.pending, stuck)
	return m
}

// age moves the start of all waits for tables into the past.
func (f *fixture) age(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pending := range f.pending {
		pending.since = pending.since.Add(-by)
	}
}

// A process that keeps mapping code, like a JIT, or that keeps requesting tables for new
// addresses, waits no longer for a table than other processes.
func TestLoaderSlowTable(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	top := f.maps[len(f.maps)-1].Limit
	maps := append(slices.Clone(f.maps), f.addStuckFile(top))
	for i := range 2 * tableTimeout / time.Second {
		start := top + uint64(i+2)*0x1000
		maps = append(slices.Clone(maps), process.Mapping{Start: start, Limit: start + 0x1000, Kind: process.KindAnon})
		f.Remap(1, maps)
		f.Request(1, 10, maps)
		f.Need(1, 10, top)
		f.age(time.Second)
		f.Settled(monotonic.Now())
		known := true
		for _, m := range maps {
			_, err := f.kernel.find(1, m.Start)
			if m.Start == top { // the file without its table
				known = known && errors.Is(err, errLate)
			} else {
				known = known && err == nil
			}
		}
		if late := (i+1)*time.Second >= tableTimeout; known != late {
			t.Fatalf("after %v: got %v for having all mappings, want %v", (i+1)*time.Second, known, late)
		}
	}

	// Now the table is compiled.
	f.mu.Lock()
	f.add(f.file(maps[len(f.maps)]), compiled{}, nil)
	f.mu.Unlock()
	if _, err := f.kernel.find(1, top); err != nil {
		t.Errorf("got %v for a table that exists", err)
	}
}

// While a table is compiled, the process's layout marks its mapping as pending, and has the
// other mappings. The walkers' caches stay valid.
func TestLoaderPending(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	salt := layoutSalt(f.kernel.processes[1].Layout)
	top := f.maps[len(f.maps)-1].Limit + 0x1000 // apart from the last mapping, whose code may have no table, either
	other := process.Mapping{Start: top + 0x2000, Limit: top + 0x3000, Kind: process.KindAnon}
	maps := append(slices.Clone(f.maps), f.addStuckFile(top), other)
	f.Remap(1, maps)
	f.kernel.fork(1, 2, 20)
	f.Forked(1, 2, monotonic.Now())
	f.InheritLayouts()
	check := func(when string, want error) {
		t.Helper()
		for pid := 1; pid <= 2; pid++ {
			if _, err := f.kernel.find(pid, top); !errors.Is(err, want) {
				t.Errorf("%s, process %d: got %v for the new file, want %v", when, pid, err, want)
			}
			for _, start := range []uint64{f.maps[0].Start, other.Start} {
				if _, err := f.kernel.find(pid, start); err != nil {
					t.Errorf("%s, process %d: got %v for another mapping", when, pid, err)
				}
			}
			if got := layoutSalt(f.kernel.processes[pid].Layout); got != salt {
				t.Errorf("%s, process %d: got salt %d, want %d", when, pid, got, salt)
			}
		}
	}
	check("without the table", errPending)

	if !f.Need(1, 10, top) || !f.Need(2, 20, top) || f.Need(2, 21, top) {
		t.Error("got other processes than those of two images")
	}
	check("needed", errPending)
	f.mu.Lock()
	f.add(f.file(maps[len(f.maps)]), compiled{}, nil)
	f.mu.Unlock()
	check("with the table", nil)
	f.settleAll(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.layouts) != 1 {
		t.Errorf("got %d layouts, want one for both processes", len(f.layouts))
	}
}

// TestLoaderBeforeProgram requests a process before its program is mapped.
func TestLoaderBeforeProgram(t *testing.T) {
	for name, before := range map[string][]process.Mapping{
		"nothing": nil,
		"vdso":    {{Start: 0x1000, Limit: 0x2000, Kind: process.KindAnon}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, testConfig)
			f.Request(1, 10, before)
			f.Remap(1, append(slices.Clone(before), f.addStuckFile(0x10000)))
			if _, err := f.kernel.find(1, 0x10000); !errors.Is(err, errPending) {
				t.Errorf("got %v for the program, want %v", err, errPending)
			}
			f.Remap(1, f.maps)
			f.Need(1, 10, f.maps[0].Start)
			f.wait(t)
			if _, err := f.kernel.find(1, f.maps[0].Start); err != nil {
				t.Errorf("got no rule for the program: %v", err)
			}
		})
	}
}

// A child with an unknown layout is requested again.
func TestLoaderForkUnknown(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.kernel.processes[2] = entry{Image: 20, Layout: packLayout(span{1234, 5}, 77)}
	f.Forked(1, 2, monotonic.Now())
	f.InheritLayouts()
	if _, ok := f.kernel.processes[2]; ok {
		t.Error("got a layout that no process has")
	}
}

func TestLoaderReset(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	e := f.kernel.processes[1]
	f.kernel.fork(1, 2, 20) // not reported
	f.Forked(1, 3, monotonic.Now())
	f.Reset()
	if len(f.kernel.processes) != 0 || f.kernel.forgotten != 1 || f.Known(1) {
		t.Errorf("got %d processes left, %d cleared requests; want 0, 1", len(f.kernel.processes), f.kernel.forgotten)
	}

	// Records about the mappings of a child may be among the lost ones.
	f.kernel.processes[3] = entry{Image: 30, Layout: e.Layout}
	f.InheritLayouts()
	if _, ok := f.kernel.processes[3]; ok {
		t.Error("got a layout of a child with unknown mappings")
	}
}

// Mappings and processes without room are left out and counted, and their room is freed.
func TestLoaderLimits(t *testing.T) {
	c := testConfig
	c.mappings, c.mappingsEach, c.processes = 20, 8, 3
	f := newFixture(t, c)
	many := make([]process.Mapping, 100)
	for i := range many {
		start := uint64(i)*0x10000 + 0x10000
		many[i] = process.Mapping{Start: start, Limit: start + 0x1000, Kind: process.KindAnon}
	}
	f.Request(1, 10, many)
	if n := layoutSpan(f.kernel.processes[1].Layout).n; n != 8 {
		t.Errorf("got %d mappings of a process, want 8", n)
	}
	f.Request(2, 20, many)
	f.Request(3, 30, many) // no room for its mappings
	f.Request(4, 40, many[:1])
	f.Request(5, 50, many[:1]) // no room in the map of processes
	if stats := f.Stats(); stats.Cut != 2 || stats.Processes != 2 || stats.Failure != nil {
		t.Errorf("got %+v, want 2 processes cut and 2 left out", stats)
	}
	for pid := range 6 {
		f.Ended(pid)
	}
	f.settleAll(t)
	if len(f.room.free) != 1 || len(f.kernel.processes) != 0 {
		t.Errorf("got room %v and %d processes left, want one free span and none", f.room.free, len(f.kernel.processes))
	}
}

// Only a table that is larger than the memory limit is left out.
func TestLoaderMemory(t *testing.T) {
	c := testConfig
	c.memory = pageCost
	f := newFixture(t, c)
	f.load(t, 1, 10, f.maps)
	stats := f.Stats()
	if stats.NoRoom == 0 || stats.Tables == 0 || stats.Failure != nil {
		t.Errorf("got %+v, want one table left out and another loaded", stats)
	}
	if stats.Pages.Peak > 1 {
		t.Errorf("got %d pages attached, want 1", stats.Pages.Peak)
	}
}

// Tables are made when a walk needs them, and those of code without unwind information only when a walk
// goes through such code.
func TestLoaderNeed(t *testing.T) {
	f := newFixture(t, testConfig)
	path := filepath.Join(t.TempDir(), "bare")
	command(t, "gcc", "-O1", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-o", path, filepath.Join("..", "testdata", "frames.c"))
	table := process.NewTable(process.Options{})
	t.Cleanup(func() { _ = table.Close() })
	file, err := table.Open(os.Getpid(), path)
	if err != nil {
		t.Fatal(err)
	}
	ef, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ef.Close()
	text := ef.Section(".text")
	const start = 1 << 40
	m := process.Mapping{Start: start, Limit: start + 1<<16, Offset: text.Offset &^ 0xfff, Kind: process.KindFile, File: file}
	f.Request(1, 10, []process.Mapping{m})
	in := func(rules bool) (unread []uint64) {
		t.Helper()
		found := 0
		for addr := start + text.Offset - m.Offset; addr < start+text.Offset-m.Offset+text.Size; addr++ {
			rule, err := f.kernel.find(1, addr)
			switch {
			case errors.Is(err, errPending):
				unread = append(unread, addr)
			case err != nil:
				t.Fatal(err)
			case rule != ruleNone:
				found++
			}
		}
		if rules != (found > 0) {
			t.Errorf("got %d addresses with rules, want some: %v", found, rules)
		}
		return unread
	}
	unread := in(false)
	if uint64(len(unread)) != text.Size || f.Stats().Tables != 0 {
		t.Fatalf("before a walk: got %d of %d addresses without a table, %+v; want all", len(unread), text.Size, f.Stats())
	}
	f.Need(1, 10, unread[0])
	f.wait(t)
	unread = in(true) // the entry point
	if len(unread) == 0 || f.Stats().Tables != 1 {
		t.Fatalf("after a walk: got %d addresses with code to analyze, %+v; want some, and a table", len(unread), f.Stats())
	}
	f.Need(1, 10, unread[0])
	f.wait(t)
	if unread = in(true); len(unread) != 0 {
		t.Errorf("after a walk through unread code: got %d addresses with code to analyze, want none", len(unread))
	}
	f.Ended(1)
	f.settleAll(t)
	if stats := f.Stats(); stats.Tables != 2 || stats.Failure != nil {
		t.Errorf("got %+v, want both tables until they are dropped", stats)
	}
}

// An evicted page is reloaded on request.
func TestLoaderReload(t *testing.T) {
	c := testConfig
	c.memory = 5 * pageCost // the C library has two or three
	f := newFixture(t, c)
	f.load(t, 1, 10, f.maps)
	f.pages.mu.Lock()
	err := f.pages.makeRoom(f.pages.limit)
	f.pages.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	m := f.maps[0]
	_, err = f.kernel.find(1, m.Start+0x100)
	missing := pageError(0)
	if !errors.As(err, &missing) {
		t.Fatalf("got error %v, want one about a missing page", err)
	}
	for addr := m.Start; addr < m.Limit; addr += 16 { // the table may span pages
		for _, err := f.kernel.find(1, addr); errors.As(err, &missing); _, err = f.kernel.find(1, addr) {
			f.Reload(uint32(missing))
			f.working.Wait()
		}
	}
	checkMapping(t, f, 1, m, rand.New(rand.NewPCG(5, 6)))
	if stats := f.Stats(); stats.Pages.Reloaded == 0 || stats.Pages.Evicted == 0 {
		t.Errorf("got %+v, want pages evicted and reloaded", stats.Pages)
	}
}

// Unused tables are dropped once there are many.
func TestLoaderDropsUnused(t *testing.T) {
	f := newFixture(t, testConfig)
	f.load(t, 1, 10, f.maps)
	f.Ended(1)
	f.settleAll(t)
	f.mu.Lock()
	files := len(f.files)
	for range maxUnused + 1 {
		key := fileKey{file: &process.File{}, kind: process.KindFile}
		made := &file{key: key, queued: true, done: true}
		f.files[key] = made
		f.unused = append(f.unused, made)
	}
	f.mu.Unlock()
	f.Request(1, 10, nil)
	f.Ended(1)
	f.settleAll(t)
	f.working.Wait()
	if files == 0 || len(f.files) > maxUnused/2 {
		t.Errorf("got %d files left, want fewer", len(f.files))
	}
	if stats := f.Stats(); stats.Tables != 0 || stats.Bytes != 0 {
		t.Errorf("got %+v, want no tables", stats)
	}
	for index, at := range f.pages.all {
		if at.used != 0 {
			t.Errorf("page %d: got %d words in use, want 0", index, at.used)
		}
	}
}

// With tables alone, a stack ends at code without a table.
func TestFallback(t *testing.T) {
	for arg, want := range []uint32{unwind.ChainAny: ruleChain, unwind.ChainStacks: ruleChainGo, unwind.ChainAtEnd: ruleChainAtEnd} {
		chain := unwind.Chain(uint8(arg))
		if got := newRules(100, Auto).index[chain]; got != want {
			t.Errorf("%+v: got rule %d, want %d", chain, got, want)
		}
		if got, ok := newRules(100, Tables).index[chain]; !ok || got != ruleNone {
			t.Errorf("with tables alone, %+v: got rule %d (%v), want %d", chain, got, ok, ruleNone)
		}
	}
}

// The test is a Go program; all processes have the vdso.
func TestCompile(t *testing.T) {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	c, err := compile(t.Context(), input{r: file, size: info.Size(), name: "test"}, unwind.Options{})
	if c.Fallback != unwind.Chain(unwind.ChainStacks) || err != nil && !errors.Is(err, unwind.ErrNoTable) {
		t.Errorf("got fallback %+v, %v; want a Go program's", c.Fallback, err)
	}
	vdso, err := readVDSO()
	if err != nil {
		t.Fatal(err)
	}
	c, err = compile(t.Context(), vdso, unwind.Options{})
	// On arm64, the vdso has only a signal trampoline.
	if err != nil || c.Fallback.Arg != unwind.ChainAny || len(c.Table.Rules) < 3 {
		t.Errorf("vdso: got %+v, %v; want native code with rules", c, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compile(ended, vdso, unwind.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: got %v, want %v", err, context.Canceled)
	}
}

func TestParseRequest(t *testing.T) {
	for name, record := range map[string][]byte{
		"short": make([]byte, 31), "no type": make([]byte, 32),
	} {
		if _, err := ParseRequest(record); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	process := []byte{1, 0, 0, 0, 42, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	if want, err := ParseRequest(process); err != nil || want != (Want{PID: 42, Image: 9}) {
		t.Errorf("got %+v, %v; want %+v", want, err, Want{PID: 42, Image: 9})
	}
	table := append([]byte{3}, process[1:]...)
	if want, err := ParseRequest(table); err != nil || want != (Want{PID: 42, Image: 9, Address: 0xff}) {
		t.Errorf("got %+v, %v; want %+v", want, err, Want{PID: 42, Image: 9, Address: 0xff})
	}
	page := append([]byte{2}, process[1:]...)
	if want, err := ParseRequest(page); err != nil || want != (Want{Page: 42}) {
		t.Errorf("got %+v, %v; want %+v", want, err, Want{Page: 42})
	}
}
