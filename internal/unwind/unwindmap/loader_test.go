package unwindmap

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
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

// fixture is a loader of a stand-in kernel, and what an ordinary process has
// mapped.
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

// sleeper starts a program with a C library, and returns its pid when that is
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
	// When it has copied a byte it runs.
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
	for range 60_000 {
		f.Settled(monotonic.Now() + 1)
		f.mu.Lock()
		done := len(f.retired) == 0 && !f.settling
		f.mu.Unlock()
		if done {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("layouts that no process has are not freed")
}

func (f *fixture) wait(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f.Wait(ctx)
	if ctx.Err() != nil {
		t.Fatal("the tables were not made")
	}
}

// The kernel side finds the same rules as a look-up in the tables.
func TestLoader(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(7, 70, f.maps)
	f.wait(t)
	if stats := f.Stats(); stats.Tables < 3 || stats.Failure != nil || stats.Files > 0 || stats.NoRoom > 0 {
		t.Errorf("%+v", stats)
	}
	if e := f.kernel.processes[7]; e.Image != 70 {
		t.Errorf("the entry is of image %d, want 70", e.Image)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, m := range f.maps {
		if m.Kind != process.KindFile {
			continue
		}
		checkMapping(t, f, 7, m, random)
	}
}

// checkMapping looks addresses of a mapping up.
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
				t.Fatalf("%s+%#x: rule %d, want none", m.File.Path, link, got)
			}
		case f.kernel.rules[got] != want:
			t.Fatalf("%s+%#x: got %v, want %v", m.File.Path, link, f.kernel.rules[got], want)
		}
	}
	if looked < 1000 {
		t.Errorf("%s: only %d addresses of a mapping were looked up", m.File.Path, looked)
	}
}

// Forked processes share a layout until one of them changes, and what nobody has
// any more is used again.
func TestLoaderFork(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.wait(t)
	for child := 2; child < 40; child++ {
		f.kernel.fork(1, child, uint64(10*child))
		f.Forked(1, child, monotonic.Now())
	}
	f.settleAll(t)
	f.mu.Lock()
	layouts := len(f.layouts)
	f.mu.Unlock()
	if layouts != 1 {
		t.Errorf("%d layouts, want one for all", layouts)
	}
	shared := f.kernel.processes[1].Layout

	// One replaces a mapping, and another adds one.
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
		t.Error("a change of one process's mappings is another's, too")
	}
	if layoutSalt(f.kernel.processes[2].Layout) == layoutSalt(shared) {
		t.Error("a replaced mapping has the salt of what it replaced")
	}
	if layoutSalt(f.kernel.processes[3].Layout) != layoutSalt(shared) {
		t.Error("who added a mapping has another salt than before")
	}
	if len(salts) != 3 {
		t.Errorf("salts %v: two processes added to one layout with the same one", salts)
	}

	for pid := range 40 {
		f.Ended(pid)
	}
	f.settleAll(t)
	if len(f.kernel.processes) != 0 || len(f.layouts) != 0 || len(f.room.free) != 1 {
		t.Errorf("left are %d processes, %d layouts, free room %v", len(f.kernel.processes), len(f.layouts), f.room.free)
	}
	if f.kernel.waits == 0 {
		t.Error("nobody waited for programs that run")
	}
}

// A child that was forked just before its parent's mappings changed has the old
// layout, which must not be anything else by the time that this is known.
func TestLoaderForkBeforeChange(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.wait(t)
	old := f.kernel.processes[1].Layout
	f.kernel.fork(1, 2, 20)
	before := monotonic.Now()
	f.Remap(1, f.maps[1:])
	f.Settled(before) // the fork is not known yet
	f.Request(3, 30, f.maps[2:])
	f.mu.Lock()
	_, kept := f.layouts[old]
	f.mu.Unlock()
	if !kept {
		t.Fatal("a layout was freed that a child has")
	}
	f.Forked(1, 2, before)
	f.settleAll(t)
	if got, want := layoutRun(f.kernel.processes[2].Layout).n, layoutRun(f.kernel.processes[1].Layout).n; got != want {
		t.Errorf("the child has %d mappings, its parent %d", got, want)
	}
}

// A fork is told before the kernel side has an entry of the child, which lasts if
// others take the CPU; by then the parent's layout may be another.
func TestLoaderForkLate(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.wait(t)
	old := f.kernel.processes[1].Layout
	f.Forked(1, 2, monotonic.Now())
	f.Remap(1, f.maps[1:])
	f.Settled(monotonic.Now() + 1)
	f.working.Wait()
	f.kernel.processes[2] = entry{Image: 20, Layout: old} // it was read before the change
	f.Settled(monotonic.Now() + 1)
	f.mu.Lock()
	_, kept := f.layouts[f.kernel.processes[2].Layout]
	f.mu.Unlock()
	if !f.Known(2) || !kept {
		t.Fatalf("nobody knows of the child (%v), or its layout is free (%v)", !f.Known(2), !kept)
	}
	f.settleAll(t)
	if got, want := layoutRun(f.kernel.processes[2].Layout).n, layoutRun(f.kernel.processes[1].Layout).n; got != want {
		t.Errorf("the child has %d mappings, its parent %d", got, want)
	}

	// One that gets none is not waited for.
	f.Forked(1, 3, monotonic.Now())
	f.Settled(monotonic.Now() + birth + 1)
	if len(f.unborn) > 0 {
		t.Errorf("%d children are still waited for", len(f.unborn))
	}
}

// A child may have the pid of a process whose end was not told yet.
func TestLoaderForkReused(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.Request(2, 20, f.maps[1:])
	f.wait(t)
	f.kernel.fork(1, 2, 30)
	f.Forked(1, 2, monotonic.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.processes[2]; p.image != 30 || p.layout != f.processes[1].layout {
		t.Errorf("the child has image %d and layout %+v", p.image, p.layout)
	}
}

// Two processes can each be forked by one that has the other's pid.
func TestLoaderForkReusedByEachOther(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.Request(3, 30, f.maps)
	f.wait(t)
	f.Forked(1, 2, monotonic.Now()) // the kernel side has no entry yet
	f.Request(2, 20, f.maps)
	delete(f.kernel.processes, 1) // ended, which was not told yet
	f.Forked(2, 1, monotonic.Now())
	f.Forked(1, 3, monotonic.Now())
	f.Settled(monotonic.Now() + 1)
	f.kernel.fork(2, 1, 11)
	f.Settled(monotonic.Now() + 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.processes[1]; p == nil || p.image != 11 || p.layout != f.processes[2].layout {
		t.Errorf("the last child is known as %+v", p)
	}
	if len(f.unborn) > 0 {
		t.Errorf("%d children are still waited for", len(f.unborn))
	}
}

// stick adds a file whose table is never made, and returns a mapping of it.
func (f *fixture) stick(start uint64) process.Mapping {
	m := process.Mapping{Start: start, Limit: start + 0x1000, Kind: process.KindFile, File: &process.File{}}
	stuck := &file{key: fileKey{m.File, m.Kind}, layouts: map[*layout]bool{}, since: time.Now()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[stuck.key] = stuck
	f.pending = append(f.pending, stuck)
	return m
}

// age has time pass for all who wait for tables.
func (f *fixture) age(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pending := range f.pending {
		pending.since = pending.since.Add(-by)
	}
}

// A process that maps code all the time, as one with a JIT, or whose code asks for
// tables at ever new addresses, does not wait for a table any longer than others.
func TestLoaderSlowTable(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.wait(t)
	top := f.maps[len(f.maps)-1].Limit
	maps := append(slices.Clone(f.maps), f.stick(top))
	for i := range 2 * patience / time.Second {
		start := top + uint64(i+2)*0x1000
		maps = append(slices.Clone(maps), process.Mapping{Start: start, Limit: start + 0x1000, Kind: process.KindAnon})
		f.Remap(1, maps)
		f.Request(1, 10, maps)
		f.age(time.Second)
		f.Settled(monotonic.Now())
		known := true
		for _, m := range maps {
			_, err := f.kernel.find(1, m.Start)
			known = known && err == nil
		}
		if late := (i+1)*time.Second >= patience; known != late {
			t.Fatalf("after %v: all that the process mapped is known %v, want %v", (i+1)*time.Second, known, late)
		}
	}

	// The table comes at last.
	f.mu.Lock()
	f.add(f.files[fileKey{maps[len(f.maps)].File, process.KindFile}], compiled{}, nil)
	waiting := f.processes[1].wait != nil
	f.mu.Unlock()
	if waiting {
		t.Error("the process still waits for a table that is there")
	}
}

// TestLoaderBeforeProgram asks about a process before its program is mapped. While the
// program's table is made, the process is walked by frame pointers.
func TestLoaderBeforeProgram(t *testing.T) {
	for name, before := range map[string][]process.Mapping{
		"nothing": nil,
		"vdso":    {{Start: 0x1000, Limit: 0x2000, Kind: process.KindAnon}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, testConfig)
			f.Request(1, 10, before)
			f.Remap(1, append(slices.Clone(before), f.stick(0x10000)))
			if e, ok := f.kernel.processes[1]; ok {
				t.Errorf("the process has a layout without its program: %+v", e)
			}
			f.Remap(1, f.maps)
			f.wait(t)
			if _, err := f.kernel.find(1, f.maps[0].Start); err != nil {
				t.Errorf("its program is not known: %v", err)
			}
		})
	}
}

// A child whose layout is not known is asked for again.
func TestLoaderForkUnknown(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.kernel.processes[2] = entry{Image: 20, Layout: packLayout(run{1234, 5}, 77)}
	f.Forked(1, 2, monotonic.Now())
	if _, ok := f.kernel.processes[2]; ok {
		t.Error("a process has a layout that is nobody's")
	}
}

func TestLoaderReset(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.wait(t)
	f.kernel.fork(1, 2, 20) // which nobody tells
	f.Reset()
	if len(f.kernel.processes) != 0 || f.kernel.asked != 1 || f.Known(1) {
		t.Errorf("%d processes are left, requests were forgotten %d times", len(f.kernel.processes), f.kernel.asked)
	}
}

// What there is no room for is left out, counted, and let go again.
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
	if n := layoutRun(f.kernel.processes[1].Layout).n; n != 8 {
		t.Errorf("%d mappings of a process, want 8", n)
	}
	f.Request(2, 20, many)
	f.Request(3, 30, many) // has no room for its mappings
	f.Request(4, 40, many[:1])
	f.Request(5, 50, many[:1]) // has none in the map of processes
	if stats := f.Stats(); stats.Cut != 2 || stats.Processes != 2 || stats.Failure != nil {
		t.Errorf("got %+v, want 2 processes cut and 2 left out", stats)
	}
	for pid := range 6 {
		f.Ended(pid)
	}
	f.settleAll(t)
	if len(f.room.free) != 1 || len(f.kernel.processes) != 0 {
		t.Errorf("room %v and %d processes are left", f.room.free, len(f.kernel.processes))
	}
}

// A table that is larger than the memory is left out, and a smaller one is not.
func TestLoaderMemory(t *testing.T) {
	c := testConfig
	c.memory = pageCost
	f := newFixture(t, c)
	f.Request(1, 10, f.maps)
	f.wait(t)
	stats := f.Stats()
	if stats.NoRoom == 0 || stats.Tables == 0 || stats.Failure != nil {
		t.Errorf("got %+v, want a table left out and another there", stats)
	}
	if stats.Pages.Most > 1 {
		t.Errorf("%d pages were attached, want 1", stats.Pages.Most)
	}
}

// A page that was evicted comes back when it is asked for.
func TestLoaderReload(t *testing.T) {
	c := testConfig
	c.memory = 5 * pageCost // the C library has two or three
	f := newFixture(t, c)
	f.Request(1, 10, f.maps)
	f.wait(t)
	f.pages.mu.Lock()
	err := f.pages.makeRoom(f.pages.limit)
	f.pages.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	m := f.maps[0]
	_, err = f.kernel.find(1, m.Start+0x100)
	missing := pageError(0)
	if !errors.As(err, &missing) {
		t.Fatalf("error %v, want one of a page that is not there", err)
	}
	for errors.As(err, &missing) {
		f.Reload(uint32(missing))
		f.working.Wait()
		_, err = f.kernel.find(1, m.Start+random.Uint64N(0x1000))
	}
	checkMapping(t, f, 1, m, random)
	if stats := f.Stats(); stats.Pages.Reloaded == 0 || stats.Pages.Evicted == 0 {
		t.Errorf("%+v", stats.Pages)
	}
}

// Tables that nobody needs any more are dropped, once there are many.
func TestLoaderDropsUnused(t *testing.T) {
	f := newFixture(t, testConfig)
	f.Request(1, 10, f.maps)
	f.wait(t)
	f.Ended(1)
	f.settleAll(t)
	f.mu.Lock()
	files := len(f.files)
	for range maxUnused + 1 {
		key := fileKey{&process.File{}, process.KindFile}
		made := &file{key: key, done: true}
		f.files[key] = made
		f.unused = append(f.unused, made)
	}
	f.mu.Unlock()
	f.Request(1, 10, nil)
	f.Ended(1)
	f.settleAll(t)
	f.working.Wait()
	if files == 0 || len(f.files) > maxUnused/2 {
		t.Errorf("%d files are left", len(f.files))
	}
	if stats := f.Stats(); stats.Tables != 0 || stats.Bytes != 0 {
		t.Errorf("got %+v, want nothing", stats)
	}
	for index, at := range f.pages.all {
		if at.used != 0 {
			t.Errorf("page %d has %d words that no table has", index, at.used)
		}
	}
}

// Without frame pointers, a stack ends where there is no table.
func TestFallback(t *testing.T) {
	for code, want := range map[code]uint32{
		nativeCode: ruleChain, describedCode: ruleNone, goCode: ruleChainGo, foreignCode: ruleNone,
	} {
		if got := code.fallback(Auto); got != want {
			t.Errorf("code %d falls back on rule %d, want %d", code, got, want)
		}
		if got := code.fallback(Tables); got != ruleNone {
			t.Errorf("with tables alone code %d falls back on rule %d", code, got)
		}
	}
}

// The test itself is a Go program, and the vdso is everyone's.
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
	_, c, err := compile(t.Context(), source{r: file, size: info.Size(), name: "test"}, 0)
	if c != goCode || err != nil && !errors.Is(err, unwind.ErrNoTable) {
		t.Errorf("code %d, %v; want that of a Go program", c, err)
	}
	vdso, err := readVDSO()
	if err != nil {
		t.Fatal(err)
	}
	table, c, err := compile(t.Context(), vdso, 0)
	// arm64's has no more than a signal trampoline.
	if err != nil || c != nativeCode || len(table.Rules) < 3 {
		t.Errorf("the vdso has %v of code %d, %v", table, c, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := compile(ended, vdso, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("compiling when nobody waits for it: %v", err)
	}
}

func TestParseRequest(t *testing.T) {
	for name, record := range map[string][]byte{
		"short": make([]byte, 23), "no type": make([]byte, 24),
	} {
		if _, err := ParseRequest(record); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	process := []byte{1, 0, 0, 0, 42, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	if want, err := ParseRequest(process); err != nil || want != (Want{PID: 42, Image: 9}) {
		t.Errorf("%+v, %v", want, err)
	}
	page := append([]byte{2}, process[1:]...)
	if want, err := ParseRequest(page); err != nil || want != (Want{Page: 42}) {
		t.Errorf("%+v, %v", want, err)
	}
}
