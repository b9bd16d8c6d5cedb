package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// versionsOf returns the contents of a perf map and its successors, "none" for a missing
// one.
func versionsOf(t *testing.T, m *PerfMap) (versions []string) {
	t.Helper()
	for ; m != nil; m = m.Next() {
		r, size, err := m.ReaderAt()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrFileGone) {
			versions = append(versions, "none")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(io.NewSectionReader(r, 0, size))
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, string(b))
	}
	return versions
}

// TestPerfMap writes a perf map for this process, and after each step resolves an address
// at each step's time.
func TestPerfMap(t *testing.T) {
	self := os.Getpid()
	path := perfMapPath(self)
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		testenv.Skip(t, "needs the right to map executable memory: %v", err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	addr := uint64(uintptr(unsafe.Pointer(&mem[0])))
	write := func(flags int, s string) func(*Table) error {
		return func(*Table) error {
			f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o644)
			if err != nil {
				return err
			}
			_, err = f.WriteString(s)
			return errors.Join(err, f.Close())
		}
	}
	overwrite := func(s string) func(*Table) error { return write(os.O_CREATE|os.O_TRUNC, s) }
	add := func(s string) func(*Table) error { return write(os.O_APPEND, s) }
	remove := func(*Table) error { return os.Remove(path) }
	// apply returns a step that applies records without reading the map.
	apply := func(records ...perfevent.Record) func(*Table) error {
		return func(table *Table) error {
			for _, r := range records {
				table.Apply(r)
			}
			return nil
		}
	}
	run := func(table *Table) error {
		now := monotonic.Now()
		return apply(exec(now, self), mmap(now, self, addr, addr+1, 0, "//anon"))(table)
	}
	lost := func(table *Table) error {
		return apply(perfevent.Lost{Stamp: stamp(monotonic.Now()), N: 1})(table)
	}

	for _, tc := range []struct {
		name  string
		steps []func(*Table) error
		// want lists, by step, the final contents of that step's map and its successors.
		want     [][]string
		replaced int
	}{
		{"none", []func(*Table) error{run}, [][]string{{"none"}}, 0},
		{"written later", []func(*Table) error{run, overwrite("a")}, [][]string{{"a"}, {"a"}}, 0},
		{"added to", []func(*Table) error{overwrite("a"), run, add("b"), add("c")}, [][]string{1: {"abc"}, {"abc"}, {"abc"}}, 0},
		{"removed", []func(*Table) error{overwrite("a"), run, remove}, [][]string{1: {"a"}, {"a"}}, 0},
		{"overwritten, shorter", []func(*Table) error{overwrite("abc"), run, overwrite("d")}, [][]string{1: {"abc", "d"}, {"d"}}, 1},
		{"overwritten, same length", []func(*Table) error{overwrite("abc"), run, overwrite("def")}, [][]string{1: {"abc", "def"}, {"def"}}, 1},
		{"overwritten, longer", []func(*Table) error{overwrite("abc"), run, overwrite("defg")}, [][]string{1: {"abc", "defg"}, {"defg"}}, 1},
		{"another file", []func(*Table) error{overwrite("abc"), run, func(table *Table) error {
			return errors.Join(remove(table), overwrite("abcd")(table))
		}}, [][]string{1: {"abc", "abcd"}, {"abcd"}}, 1},
		{"another program", []func(*Table) error{overwrite("abc"), run, func(table *Table) error {
			return errors.Join(overwrite("def")(table), run(table))
		}}, [][]string{1: {"abc"}, {"def"}}, 0},
		{"records lost", []func(*Table) error{overwrite("a"), run, lost, add("b")}, [][]string{1: {"ab"}, {"ab"}, {"ab"}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table := NewTable(Options{})
			t.Cleanup(func() {
				_ = table.Close()   // read-only
				_ = os.Remove(path) // may be gone
			})
			var replaced []int
			table.OnReplaced(func(pid int) { replaced = append(replaced, pid) })
			maps := make([]*PerfMap, len(tc.steps))
			times := make([]uint64, len(tc.steps))
			for i, step := range tc.steps {
				awaitFileClock(t)
				if err := step(table); err != nil {
					t.Fatal(err)
				}
				table.perfMaps.missed = table.perfMaps.missed.Add(-missingEvery)
				table.FollowJIT()
				times[i] = monotonic.Now()
				maps[i] = table.Resolve(self, addr, times[i]).PerfMap
			}
			for i, want := range tc.want {
				if want == nil {
					continue
				}
				if got := versionsOf(t, maps[i]); !slices.Equal(got, want) {
					t.Errorf("step %d: got %q, want %q", i, got, want)
				}
				again := table.Resolve(self, addr, times[i])
				if again.PerfMap != maps[i] {
					t.Errorf("step %d: got another map at the second request", i)
				}
				if got := again.Described(); got == slices.Equal(want, []string{"none"}) {
					t.Errorf("step %d: got Described %t for the map %q", i, got, want)
				}
			}
			// Lost records may hide replaced memory.
			if tc.name != "records lost" && len(replaced) != tc.replaced {
				t.Errorf("got replaced %v, want %d times", replaced, tc.replaced)
			}
		})
	}
}

// awaitFileClock waits until the clock of file times ticks: a file that is written twice
// within a tick of the kernel's coarse clock keeps its time. That clock stands still while a
// hypervisor runs something else on the CPU that has to advance it.
func awaitFileClock(t *testing.T) {
	t.Helper()
	coarse := func() (now unix.Timespec) {
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := coarse()
	testenv.Await(t, func() bool { return coarse() != before }, func() string { return "the clock of file times stands still" })
}

// TestPerfMapOfParent checks that children without a perf map use their parent's from the
// time of the fork.
func TestPerfMapOfParent(t *testing.T) {
	self := os.Getpid()
	path := perfMapPath(self)
	t.Cleanup(func() { _ = os.Remove(path) })
	if err := os.WriteFile(path, []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	table := NewTable(Options{})
	t.Cleanup(func() { _ = table.Close() }) // read-only
	for _, r := range []perfevent.Record{
		exec(1, self), mmap(2, self, 0x1000, 0x2000, 0, "//anon"),
		fork(3, self, pidA), fork(4, pidA, pidB),
	} {
		table.Apply(r)
	}
	check := func(pid int, time uint64, want string) {
		t.Helper()
		if got := versionsOf(t, table.Resolve(pid, 0x1000, time).PerfMap); !slices.Equal(got, []string{want}) {
			t.Errorf("pid A+%d: got %q, want %s", pid-pidA, got, want)
		}
	}
	check(pidB, 5, "a")
	table.Apply(exit(6, pidB, pidB)) // does not affect the parent's map
	table.Forget(7)
	if err := os.WriteFile(path, []byte("ab"), 0o644); err != nil {
		t.Fatal(err)
	}
	table.FollowJIT()
	check(self, 8, "ab")
	check(pidA, 8, "ab")

	now := monotonic.Now()
	table.Apply(exec(now, self))
	table.Apply(fork(now+1, self, pidC))
	table.Apply(mmap(now+2, pidC, 0x1000, 0x2000, 0, "//anon"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check(pidC, now+3, "none")
	check(pidA, now+3, "ab")
}

// followed opens the perf map at path and closes it when the test ends.
func followed(t *testing.T, path string) *safeopen.File {
	t.Helper()
	var f *safeopen.File
	if err := fusetest.UntilAnswered(t, safeopen.ErrNoAnswer, func() (err error) {
		f, err = safeopen.Open("/", path, safeopen.Regular)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // read-only
	return f
}

// A snapshot keeps the map's contents as of the time of the snapshot.
func TestPerfMapSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.map")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &spool{limit: spoolLimit}
	defer s.close()
	m := &PerfMap{file: followed(t, path), kept: spooled{in: s}}
	grow := func(line string) {
		t.Helper()
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		m.update()
	}
	grow("10 10 first\n")
	before := m.Snapshot()
	grow("20 10 second\n")
	if got := versionsOf(t, before); !slices.Equal(got, []string{"10 10 first\n"}) {
		t.Errorf("snapshot: got %q, want the first line", got)
	}
	if got := versionsOf(t, m.Snapshot()); !slices.Equal(got, []string{"10 10 first\n20 10 second\n"}) {
		t.Errorf("next snapshot: got %q, want both lines", got)
	}
	if (*PerfMap)(nil).Snapshot() != nil {
		t.Error("got a snapshot of no map")
	}
}

// If a map's file system hangs, the kept part stays and Incomplete returns the reason.
func TestPerfMapNoAnswer(t *testing.T) {
	testenv.Root(t)
	const line = "1000 10 compiled\n"
	path, stop := fusetest.Mount(t, fusetest.File(t, line))
	s := &spool{limit: spoolLimit}
	defer s.close()
	m := &PerfMap{file: followed(t, path), kept: spooled{in: s}}
	rewritten := false
	err := fusetest.UntilAnswered(t, safeopen.ErrNoAnswer, func() error {
		rewritten = m.update() || rewritten
		return m.Incomplete()
	})
	if rewritten || err != nil || m.kept.size != int64(len(line)) {
		t.Fatalf("got %d bytes kept, %v, rewritten: %v; want the line", m.kept.size, err, rewritten)
	}
	stop()
	if m.update() || !errors.Is(m.Incomplete(), safeopen.ErrNoAnswer) || m.kept.size != int64(len(line)) {
		t.Errorf("got %d bytes kept, %v; want the line and ErrNoAnswer", m.kept.size, m.Incomplete())
	}
}

// If a file system with the maps of many processes hangs, only one open waits for it.
func TestPerfMapsNoAnswer(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	unshare, shell := testenv.Tool(t, "unshare"), testenv.Tool(t, "sh")
	file, stop := fusetest.Mount(t, fusetest.File(t, ""))
	var pids []int
	for range 5 {
		cmd := osexec.Command(unshare, "--mount", shell, "-c", `mount --bind "$0" /tmp && echo ready && read end`, filepath.Dir(file))
		_, out := start(t, cmd)
		awaitReady(t, out)
		pids = append(pids, cmd.Process.Pid)
	}
	stop()
	before := runtime.NumGoroutine()
	for _, pid := range pids {
		if _, err := openPerfMap(nil, pid); !errors.Is(err, safeopen.ErrNoAnswer) {
			t.Errorf("got error %v, want ErrNoAnswer", err)
		}
	}
	// An open question uses two goroutines.
	if waiting := runtime.NumGoroutine() - before; waiting >= len(pids) {
		t.Errorf("got %d waiting goroutines, want the goroutines of one question", waiting)
	}
}

// A map that a process writes just before its exit is found after the exit, at the end of
// the measurement or when the exit is processed.
func TestPerfMapAtExit(t *testing.T) {
	for name, end := range map[string]func(*perfMaps, int){
		"measurement ends": func(p *perfMaps, _ int) { p.follow(func(int) {}) },
		"process ends":     func(p *perfMaps, pid int) { p.leave(pid) },
	} {
		t.Run(name, func(t *testing.T) {
			p := perfMaps{followed: map[int]*PerfMap{}, spool: &spool{limit: spoolLimit}}
			t.Cleanup(func() {
				p.close()
				if err := p.spool.close(); err != nil {
					t.Error(err)
				}
			})
			cmd := osexec.Command(testenv.Tool(t, "cat"))
			input, _ := start(t, cmd)
			pid := cmd.Process.Pid
			m := p.open(pid)
			if !errors.Is(m.err, fs.ErrNotExist) {
				t.Errorf("missing map: got error %v, want %v", m.err, fs.ErrNotExist)
			}
			path := perfMapPath(pid)
			t.Cleanup(func() { os.Remove(path) })
			if err := errors.Join(os.WriteFile(path, []byte("1 1 last\n"), 0o600), input.Close(), cmd.Wait()); err != nil {
				t.Fatal(err)
			}
			end(&p, pid)
			if got := versionsOf(t, m); !slices.Equal(got, []string{"1 1 last\n"}) {
				t.Errorf("got %q, want the last line", got)
			}
			if m.place != nil {
				t.Error("the map's directory is still open")
			}
		})
	}
}

// A child may get the PID of its grandparent, which is gone. After a loss of records, parent
// and child seem to be each other's parents.
func TestPerfMapParentCycle(t *testing.T) {
	table := NewTable(Options{})
	table.perfMaps.budget = nil             // a time limit would break the cycle
	t.Cleanup(func() { _ = table.Close() }) // read-only
	for _, r := range []perfevent.Record{
		exec(1, pidA), mmap(2, pidA, 0x1000, 0x2000, 0, "//anon"),
		fork(3, pidA, pidB), exit(4, pidA, pidA), fork(5, pidB, pidA),
	} {
		table.Apply(r)
	}
	table.Invalidate()
	if got := versionsOf(t, table.Resolve(pidB, 0x1000, 6).PerfMap); !slices.Equal(got, []string{"none"}) {
		t.Errorf("got %q, want none", got)
	}
}
