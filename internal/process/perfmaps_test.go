package process

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// said returns what a perf map and those that took its place said.
func said(t *testing.T, m *PerfMap) (versions []string) {
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

// TestPerfMap has this process write a perf map, and asks after each step for
// the map of each step's time.
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
	anew := func(s string) func(*Table) error { return write(os.O_CREATE|os.O_TRUNC, s) }
	add := func(s string) func(*Table) error { return write(os.O_APPEND, s) }
	remove := func(*Table) error { return os.Remove(path) }
	// apply is a step without a look at the map before the next.
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
		// want is what the map of each step's time, and those after it, say
		// in the end; by step.
		want     [][]string
		replaced int
	}{
		{"none", []func(*Table) error{run}, [][]string{{"none"}}, 0},
		{"written later", []func(*Table) error{run, anew("a")}, [][]string{{"a"}, {"a"}}, 0},
		{"added to", []func(*Table) error{anew("a"), run, add("b"), add("c")}, [][]string{1: {"abc"}, {"abc"}, {"abc"}}, 0},
		{"removed", []func(*Table) error{anew("a"), run, remove}, [][]string{1: {"a"}, {"a"}}, 0},
		{"written anew, shorter", []func(*Table) error{anew("abc"), run, anew("d")}, [][]string{1: {"abc", "d"}, {"d"}}, 1},
		{"written anew, as long", []func(*Table) error{anew("abc"), run, anew("def")}, [][]string{1: {"abc", "def"}, {"def"}}, 1},
		{"written anew, longer", []func(*Table) error{anew("abc"), run, anew("defg")}, [][]string{1: {"abc", "defg"}, {"defg"}}, 1},
		{"another file", []func(*Table) error{anew("abc"), run, func(table *Table) error {
			return errors.Join(remove(table), anew("abcd")(table))
		}}, [][]string{1: {"abc", "abcd"}, {"abcd"}}, 1},
		{"another program", []func(*Table) error{anew("abc"), run, func(table *Table) error {
			return errors.Join(anew("def")(table), run(table))
		}}, [][]string{1: {"abc"}, {"def"}}, 0},
		{"records lost", []func(*Table) error{anew("a"), run, lost, add("b")}, [][]string{1: {"ab"}, {"ab"}, {"ab"}}, 0},
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
				// The clock of file systems ticks every 10 ms at worst: a file
				// written twice within a tick is as old as before.
				time.Sleep(15 * time.Millisecond)
				if err := step(table); err != nil {
					t.Fatal(err)
				}
				table.perfMaps.missed = table.perfMaps.missed.Add(-missingEvery)
				table.FollowPerfMaps()
				times[i] = monotonic.Now()
				maps[i] = table.Resolve(self, addr, times[i]).PerfMap
			}
			for i, want := range tc.want {
				if want == nil {
					continue
				}
				if got := said(t, maps[i]); !slices.Equal(got, want) {
					t.Errorf("step %d: got %q, want %q", i, got, want)
				}
				if again := table.Resolve(self, addr, times[i]).PerfMap; again != maps[i] {
					t.Errorf("step %d: another map when asked again", i)
				}
			}
			// Lost records may hide replaced memory, which is another matter.
			if tc.name != "records lost" && len(replaced) != tc.replaced {
				t.Errorf("replaced %v, want %d times", replaced, tc.replaced)
			}
		})
	}
}

// TestPerfMapOfParent has children without a perf map go on with the one that
// their parent had when it forked them.
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
		if got := said(t, table.Resolve(pid, 0x1000, time).PerfMap); !slices.Equal(got, []string{want}) {
			t.Errorf("pid A+%d: got %q, want %s", pid-pidA, got, want)
		}
	}
	check(pidB, 5, "a")
	table.Apply(exit(6, pidB, pidB)) // does not end what its parent has
	table.Forget(7)
	if err := os.WriteFile(path, []byte("ab"), 0o644); err != nil {
		t.Fatal(err)
	}
	table.FollowPerfMaps()
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

// followed opens the perf map at path until the test's end.
func followed(t *testing.T, path string) *safeopen.File {
	t.Helper()
	f, err := safeopen.Open("/", path, safeopen.Regular)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // read-only
	return f
}

// A snapshot stays as it is, and says what the map then said.
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
	if got := said(t, before); !slices.Equal(got, []string{"10 10 first\n"}) {
		t.Errorf("the snapshot says %q", got)
	}
	if got := said(t, m.Snapshot()); !slices.Equal(got, []string{"10 10 first\n20 10 second\n"}) {
		t.Errorf("the next snapshot says %q", got)
	}
	if (*PerfMap)(nil).Snapshot() != nil {
		t.Error("a snapshot of no map")
	}
}

// A map whose file system does not answer any more is as it was, and tells why.
func TestPerfMapNoAnswer(t *testing.T) {
	testenv.Root(t)
	const line = "1000 10 compiled\n"
	served := filepath.Join(t.TempDir(), "served")
	if err := os.WriteFile(served, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	path, stop := fusetest.Mount(t, served)
	s := &spool{limit: spoolLimit}
	defer s.close()
	m := &PerfMap{file: followed(t, path), kept: spooled{in: s}}
	if m.update() || m.Incomplete() != nil || m.kept.size != int64(len(line)) {
		t.Fatalf("%d bytes are kept, %v", m.kept.size, m.Incomplete())
	}
	stop()
	if m.update() || !errors.Is(m.Incomplete(), answer.ErrNone) || m.kept.size != int64(len(line)) {
		t.Errorf("%d bytes are kept, %v", m.kept.size, m.Incomplete())
	}
}

// Where many processes have their maps in one file system that does not answer, that
// is waited for once.
func TestPerfMapsNoAnswer(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	unshare, shell := testenv.Tool(t, "unshare"), testenv.Tool(t, "sh")
	served := filepath.Join(t.TempDir(), "served")
	if err := os.WriteFile(served, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file, stop := fusetest.Mount(t, served)
	var pids []int
	for range 5 {
		cmd := osexec.Command(unshare, "--mount", shell, "-c", `mount --bind "$0" /tmp && echo ready && read end`, filepath.Dir(file))
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
			_ = in.Close() // ends it
			_ = cmd.Wait() // in vain
		})
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		pids = append(pids, cmd.Process.Pid)
	}
	stop()
	before := runtime.NumGoroutine()
	for _, pid := range pids {
		if _, err := openPerfMap(nil, pid); !errors.Is(err, answer.ErrNone) {
			t.Errorf("error %v", err)
		}
	}
	// A question that is open has two: who asks, and who waits for that.
	if waiting := runtime.NumGoroutine() - before; waiting >= len(pids) {
		t.Errorf("%d goroutines wait, want those of one question", waiting)
	}
}

// A map that a process wrote as the last thing it did is found when the process is gone,
// be it at the end of the measurement or when its end is met.
func TestPerfMapAtExit(t *testing.T) {
	for name, end := range map[string]func(*perfMaps, int){
		"measurement ends": func(p *perfMaps, _ int) { p.follow(func(int) {}) },
		"process ends":     func(p *perfMaps, pid int) { p.leave(pid) },
	} {
		t.Run(name, func(t *testing.T) {
			p := perfMaps{followed: map[int]*PerfMap{}, spool: spool{limit: spoolLimit}}
			t.Cleanup(func() {
				if err := p.close(); err != nil {
					t.Error(err)
				}
			})
			cmd := osexec.Command(testenv.Tool(t, "cat"))
			input, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := cmd.Process.Pid
			m := p.open(pid)
			if !errors.Is(m.err, fs.ErrNotExist) {
				t.Errorf("a map before there is one: %v", m.err)
			}
			path := perfMapPath(pid)
			t.Cleanup(func() { os.Remove(path) })
			if err := errors.Join(os.WriteFile(path, []byte("1 1 last\n"), 0o600), input.Close(), cmd.Wait()); err != nil {
				t.Fatal(err)
			}
			end(&p, pid)
			if got := said(t, m); !slices.Equal(got, []string{"1 1 last\n"}) {
				t.Errorf("the map says %q", got)
			}
			if m.place != nil {
				t.Error("the place of the map stays open")
			}
		})
	}
}
