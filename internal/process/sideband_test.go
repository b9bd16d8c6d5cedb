package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// helperVar makes the test binary a process to watch. It holds the path of a file to map.
const helperVar = "FULGUR_TEST_MAP"

func TestMain(m *testing.M) {
	if os.Getenv(survivorVar) != "" {
		outlive()
	}
	if path := os.Getenv(helperVar); path != "" {
		if err := helper(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// helper does a step for each line of input and prints an address: first it maps the file
// as executable, then memory over it. After the third line, it executes cat(1).
func helper(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	size := uintptr(os.Getpagesize())
	var addr unsafe.Pointer
	if err := awaitLine(); err != nil {
		return err
	}
	if addr, err = unix.MmapPtr(int(f.Fd()), 0, nil, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE); err != nil {
		return err
	}
	fmt.Printf("%x\n", addr)
	if err := awaitLine(); err != nil {
		return err
	}
	if addr, err = unix.MmapPtr(-1, 0, addr, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED); err != nil {
		return err
	}
	fmt.Printf("%x\n", addr)
	if err := awaitLine(); err != nil {
		return err
	}
	cat, err := osexec.LookPath("cat")
	if err != nil {
		return err
	}
	return unix.Exec(cat, []string{"cat"}, nil)
}

// awaitLine reads a line from standard input without reading ahead: later input may be
// for the next program.
func awaitLine() error {
	for b := []byte{0}; b[0] != '\n'; {
		if _, err := os.Stdin.Read(b); err != nil {
			return err
		}
	}
	return nil
}

// start starts a command with pipes to its standard input and output, and kills it when
// the test ends.
func start(t *testing.T, cmd *osexec.Cmd) (in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has exited
		_ = cmd.Wait()
	})
	return in, bufio.NewReader(pipe)
}

// awaitReady waits until a command prints "ready".
func awaitReady(t *testing.T, out *bufio.Reader) {
	t.Helper()
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v, want ready", line, err)
	}
}

// watched is a running helper.
type watched struct {
	pid int
	in  io.Writer
	out *bufio.Reader
}

// watch starts the program at path as a helper that maps file.
func watch(t *testing.T, path, file string) *watched {
	t.Helper()
	cmd := osexec.Command(path)
	cmd.Env = append(os.Environ(), helperVar+"="+file)
	in, out := start(t, cmd)
	return &watched{cmd.Process.Pid, in, out}
}

// step makes the helper do its next step and returns the address that it prints.
func (w *watched) step(t *testing.T) (addr uint64) {
	t.Helper()
	if _, err := io.WriteString(w.in, "go\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanf(w.out, "%x\n", &addr); err != nil {
		t.Fatal(err)
	}
	return addr
}

// openSideband opens a sideband for all CPUs.
func openSideband(t *testing.T, pages int) *Sideband {
	t.Helper()
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenSideband(cpus, pages, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(s.FDs()); got != 2*len(cpus) {
		t.Errorf("got %d descriptors, want %d", got, 2*len(cpus))
	}
	return s
}

// mapsOf returns the mappings of a process from /proc.
func mapsOf(t *testing.T, pid int) []procfs.Map {
	t.Helper()
	maps, err := ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	return maps
}

// listen returns a table and a function that drains the sideband into it.
func listen(t *testing.T) (*Table, func()) {
	t.Helper()
	testenv.Root(t)
	s := openSideband(t, 128)
	var table *Table
	var last uint64
	drain := func() {
		lost, err := s.Drain(func(r perfevent.Record) {
			if r.When() < last {
				t.Errorf("got %+v after a record of %d, want records in order of time", r, last)
			}
			last = r.When()
			table.Apply(r)
		})
		table.Applied()
		if err != nil || lost != 0 {
			t.Errorf("Drain: got lost %d, %v; want 0", lost, err)
		}
	}
	table = NewTable(Options{Sync: drain})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table, drain
}

// checkMaps compares the table with the process's current /proc maps.
func checkMaps(t *testing.T, table *Table, pid int) {
	t.Helper()
	maps := mapsOf(t, pid)
	now := monotonic.Now()
	for _, m := range maps {
		for _, addr := range []uint64{m.Start, m.Start + 42, m.Limit - 1} {
			l := table.Resolve(pid, addr, now)
			if want := KindOf(m.Name, m.Ino); l.Kind != want {
				t.Errorf("%+v: got %v, want %v", m, l, want)
				continue
			}
			if l.Kind != KindFile {
				continue
			}
			if l.Offset != addr-m.Start+m.Offset || l.File.Path != m.Name || l.File.Key.Ino != m.Ino {
				t.Errorf("%+v: %#x resolves to %v", m, addr, l)
			}
		}
	}
}

// TestSidebandLive watches a process that maps a file like dlopen, maps memory over it,
// and executes another program. It resolves addresses after each step, and
// addresses of earlier steps again.
func TestSidebandLive(t *testing.T) {
	testenv.EveryKernel(t)
	table, drain := listen(t)
	var replaced []int
	table.OnReplaced(func(pid int) { replaced = append(replaced, pid) })
	file := filepath.Join(t.TempDir(), "library")
	if err := os.WriteFile(file, []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, self, file)

	addr := w.step(t)
	drain()
	checkMaps(t, table, w.pid)
	mapped := monotonic.Now()
	if table.images[w.pid].base != nil {
		t.Error("a process seen from its first instruction was read from /proc")
	}
	if len(replaced) > 0 && slices.Contains(replaced, w.pid) {
		t.Error("a mapping at a new place was reported as a replacement")
	}

	if again := w.step(t); again != addr {
		t.Fatalf("got address %#x, want %#x", again, addr)
	}
	drain()
	checkMaps(t, table, w.pid)
	anonymous := monotonic.Now()
	if !slices.Contains(replaced, w.pid) {
		t.Error("the replacement was not reported")
	}

	if _, err := io.WriteString(w.in, "go\nhello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := w.out.ReadString('\n'); err != nil || line != "hello\n" { // from cat
		t.Fatalf("got %q, %v; want hello", line, err)
	}
	drain()
	checkMaps(t, table, w.pid)

	if l := table.Resolve(w.pid, addr, mapped); l.File == nil || l.File.Path != file {
		t.Errorf("at the first step's time: got %v, want %s", l, file)
	}
	if l := table.Resolve(w.pid, addr, anonymous); l.Kind != KindAnon {
		t.Errorf("at the second step's time: got %v, want anonymous memory", l)
	}
}

// TestSidebandDeleted deletes a program while it runs, and resolves its code after its
// exit.
func TestSidebandDeleted(t *testing.T) {
	table, drain := listen(t)
	code, err := os.ReadFile(testenv.Tool(t, "cat"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cat") // busybox chooses the program by argv[0]
	if err := os.WriteFile(path, code, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(path)
	in, _ := start(t, cmd)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	mapped := func() (at uint64, ok bool) {
		if table.images[pid] == nil {
			return 0, false
		}
		for m := range table.images[pid].live.All() {
			if m.file != nil && m.file.Path == path {
				return m.start, true
			}
		}
		return 0, false
	}
	// Start returns after the exec, perhaps before the program is mapped.
	testenv.Await(t, func() bool {
		drain()
		_, ok := mapped()
		return ok
	}, func() string { return fmt.Sprintf("got no mapping of %s in %+v", path, table.images[pid]) })
	seen := monotonic.Now()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	drain()
	start, ok := mapped()
	if !ok {
		t.Fatalf("got no mapping of %s in %+v", path, slices.Collect(table.images[pid].live.All()))
	}
	l := table.Resolve(pid, start, seen)
	if got, err := contents(l.File); err != nil || got != string(code) {
		t.Errorf("%v: got %d bytes, %v, want %d", l, len(got), err, len(code))
	}
	table.Forget(monotonic.Now())
	if table.images[pid] != nil {
		t.Error("the process is still in the table")
	}
}

// TestSidebandForks watches a process that was started before the sideband, and forks:
// its children have its mappings.
func TestSidebandForks(t *testing.T) {
	testenv.Root(t)
	sh := testenv.Tool(t, "sh")
	cmd := osexec.Command(sh, "-c", `read x; (read y; exit 0) <&0; echo done; read z`)
	in, out := start(t, cmd)
	table, drain := listen(t)
	if _, err := io.WriteString(in, "x\ny\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	drain()
	shell, now := cmd.Process.Pid, monotonic.Now()
	child := 0
	for pid, i := range table.images {
		if i.forked && i.parent == shell {
			child = pid
		}
	}
	if child == 0 {
		t.Fatal("got no child")
	}
	maps := mapsOf(t, shell)
	for _, m := range maps {
		a, b := table.Resolve(child, m.Start, now), table.Resolve(shell, m.Start, now)
		if a != b || a.Kind == KindUnknown && m.Name != "" {
			t.Errorf("%s: got %v in the child, want the parent's %v", m.Name, a, b)
		}
	}
	if table.Gone() != 0 {
		t.Errorf("got %d unreadable processes, want 0", table.Gone())
	}
}

// executable returns a function that makes memory executable and undoes it, which causes a
// mapping record.
func executable(t *testing.T) func() {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return func() {
		t.Helper()
		if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_EXEC); err != nil {
			testenv.Skip(t, "needs the right to make memory executable: %v", err)
		}
		if err := unix.Mprotect(mem, unix.PROT_READ); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSidebandStorm checks that a process that maps code without end crowds out no records of
// names, forks, execs and exits.
func TestSidebandStorm(t *testing.T) {
	testenv.EveryKernel(t)
	const pages, recordSize, name = 128, 64, "after the storm" // the smallest record is larger
	s := openSideband(t, pages)
	defer s.Close()
	toggle := executable(t)
	for range len(s.FDs()) * pages * os.Getpagesize() / recordSize {
		toggle()
	}
	runtime.LockOSThread() // not unlocked: its name has changed
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(name+"\x00"))), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	named, executed, forks, exits := false, map[int]int{}, map[int]int{}, map[int]int{}
	drain := func() (lost uint64) {
		lost, err := s.Drain(func(r perfevent.Record) {
			switch r := r.(type) {
			case perfevent.Comm:
				named = named || r.TID == unix.Gettid() && r.Comm == name
				if r.Exec {
					executed[r.PID]++
				}
			case perfevent.Fork:
				forks[r.TID]++
			case perfevent.Exit:
				exits[r.TID]++
			}
		})
		if err != nil {
			t.Error(err)
		}
		return lost
	}
	run := func() (pid int) {
		cmd := osexec.Command(testenv.Tool(t, "true"))
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	during := run()
	testenv.Await(t, func() bool {
		lost := drain()
		toggle() // the kernel reports a loss before the next record on the same CPU
		return lost > 0
	}, func() string { return "no mapping record was lost" })
	after := run() // now both rings have room
	drain()
	if !named {
		t.Error("got no record of the new name")
	}
	for _, pid := range []int{during, after} {
		if forks[pid] != 1 || executed[pid] != 1 || exits[pid] != 1 {
			t.Errorf("got %d forks, %d execs and %d exits, want one of each", forks[pid], executed[pid], exits[pid])
		}
	}
}

// TestSidebandQuiet checks the cost for watched processes: a ring wakes its reader, with
// an interrupt on the process's CPU, not for each record but when it is half full, while
// there is room for more.
func TestSidebandQuiet(t *testing.T) {
	testenv.Root(t)
	const pages = 256
	s := openSideband(t, pages)
	defer s.Close()
	var fds []unix.PollFd
	for _, fd := range s.FDs() {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	toggle := executable(t)
	const recordSize = 120 // maximum for anonymous memory
	enough := pages * os.Getpagesize() / recordSize * len(fds)
	made, ready := 0, 0
	for ready == 0 && made < enough {
		toggle()
		made++
		var err error
		if ready, err = unix.Poll(fds, 0); errors.Is(err, unix.EINTR) {
			ready = 0
		} else if err != nil {
			t.Fatal(err)
		}
	}
	heard := 0
	lost, err := s.Drain(func(perfevent.Record) { heard++ })
	if err != nil || lost != 0 {
		t.Errorf("got lost %d, %v; want 0", lost, err)
	}
	if ready == 0 {
		t.Errorf("got no readable ring after %d records", made)
	}
	if atLeast := pages * os.Getpagesize() / 2 / 512; heard < atLeast {
		t.Errorf("got a readable ring after %d records, want at least %d", heard, atLeast)
	}
}
