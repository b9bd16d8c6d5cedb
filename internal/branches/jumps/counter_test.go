package jumps_test

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/branches/cfg"
	"fulgur/internal/branches/jumps"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
	"fulgur/internal/testenv"
)

// helperVar makes the test binary count jumps of a process until it is killed.
const helperVar = "FULGUR_JUMPS_OF"

func TestMain(m *testing.M) {
	if of := os.Getenv(helperVar); of != "" {
		if err := countForever(of); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// byBreakpoints is a suffix of countForever's argument: count by breakpoints.
const byBreakpoints = ":breakpoints"

// countForever counts the jumps of "PID:FILE" and prints a line when it has begun.
func countForever(of string) error {
	pid, path, _ := strings.Cut(of, ":")
	path, breakpoints := strings.CutSuffix(path, byBreakpoints)
	p, err := open(path)
	if err != nil {
		return err
	}
	if breakpoints {
		p.probes = jumps.Breakpoints
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	c, err := p.count(target.Target{Scope: target.Processes, PIDs: []int{n}})
	if err != nil {
		return err
	}
	fmt.Println()
	for c.Err() == nil {
		time.Sleep(time.Second)
	}
	return c.Err()
}

// program is a compiled program whose jumps are counted.
type program struct {
	path string
	// Options, or 0 for defaults.
	probes   jumps.Probes
	overhead float64
	maxStall time.Duration

	file *safeopen.File
	elf  *elffile.File
	*cfg.Program
}

func open(path string) (*program, error) {
	p := &program{path: path}
	var err error
	if p.file, err = safeopen.OpenTrusted(path, safeopen.AsUser, safeopen.Regular); err != nil {
		return nil, err
	}
	if p.elf, err = elffile.Open(path); err != nil {
		return nil, err
	}
	p.Program, err = cfg.New(p.elf)
	return p, err
}

// openJumps compiles and opens testdata/jumps.c.
func openJumps(t *testing.T) *program {
	t.Helper()
	p, err := open(testenv.Compile(t, "jumps", "gcc", "-O1", "-no-pie", "-pthread", "testdata/jumps.c", "-ldl"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// symbol returns the address of a symbol and its size.
func (p *program) symbol(t *testing.T, name string) (addr, size uint64) {
	t.Helper()
	for _, s := range testenv.Symbols(t, p.path) {
		if s.Name == name {
			return s.Value, s.Size
		}
	}
	t.Fatalf("%s: no symbol %s", p.path, name)
	return 0, 0
}

func (p *program) options(t target.Target) jumps.Options {
	return jumps.Options{
		Target: t, Probes: p.probes, Program: p.Program, File: p.file, Offset: p.elf.Offset,
		Bias:        func(int) (uint64, bool) { return 0, true }, // it is linked at a fixed address
		Compare:     func(uint64, []byte) (same, known bool) { return true, true },
		MaxOverhead: cmp.Or(p.overhead, 10), MaxStall: cmp.Or(p.maxStall, time.Second), Frequency: 99,
	}
}

// count starts to count the jumps of a target.
func (p *program) count(t target.Target) (*jumps.Counter, error) {
	c, err := jumps.New(p.options(t))
	if err != nil {
		return nil, err
	}
	f, err := elf.Open(p.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	for _, s := range symbols {
		switch s.Name {
		case "quarter", "choose", "call", "step":
			c.Sampled(s.Value)
		}
	}
	err = c.Start()
	return c, err
}

// start starts a program, which is killed at the end of the test.
func start(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd
}

// needsUprobeMulti skips the test on machines that cannot count jumps by uprobes.
func needsUprobeMulti(t *testing.T) {
	t.Helper()
	needs(t, jumps.Uprobes)
}

// needs skips the test on machines that cannot count jumps by these probes.
func needs(t *testing.T, by jumps.Probes) {
	t.Helper()
	testenv.Root(t)
	if by == jumps.Breakpoints {
		testenv.Breakpoints(t)
	}
	if err := jumps.Check(by); by == jumps.Uprobes && errors.Is(err, jumps.ErrUnsupported) {
		testenv.Unsupported(t, "%v", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// windows waits until c has opened n windows more.
func windows(t *testing.T, c *jumps.Counter, n uint64) jumps.Stats {
	t.Helper()
	begin := stats(t, c)
	if begin.Jumps == 0 {
		t.Fatal("no jumps to count")
	}
	return awaitStats(t, c, fmt.Sprintf("%d windows", begin.Windows+n), func(s jumps.Stats) bool { return s.Windows >= begin.Windows+n })
}

// awaitStats waits until wanted returns true for the statistics, and returns them.
func awaitStats(t *testing.T, c *jumps.Counter, what string, wanted func(jumps.Stats) bool) (s jumps.Stats) {
	t.Helper()
	testenv.Await(t, func() bool {
		err := c.Err()
		if err == nil {
			s, err = c.Stats()
		}
		if err != nil {
			t.Fatal(err)
		}
		return wanted(s)
	}, func() string { return fmt.Sprintf("got %+v, want %s", s, what) })
	return s
}

// measure counts a target in at least n windows, until it has seen as many outcomes as wanted, and
// stops. On a crowded machine, the target does not run in each window.
func measure(t *testing.T, p *program, of target.Target, n, outcomes uint64) (*jumps.Counter, jumps.Stats) {
	t.Helper()
	c, err := p.count(of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s := awaitStats(t, c, fmt.Sprintf("%d windows with %d outcomes", n, outcomes), func(s jumps.Stats) bool {
		return s.Windows+s.Breakpoints.Windows >= n && s.Outcomes >= outcomes
	})
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// The shares of the outcomes equal the program's own. In each window, the counted calls of a
// thread are consecutive, so the count of each outcome is off by less than one. Uprobes leave
// indirect calls and jumps with prefixes to breakpoints. If these have no effect, uprobes count calls on
// machines without shadow stacks, and the rest cannot be counted.
func TestShares(t *testing.T) {
	testenv.EveryKernel(t)
	for name, test := range map[string]struct {
		probes jumps.Probes
		flags  []string
	}{
		"uprobes":                     {jumps.Uprobes, nil},
		"uprobes, prefixed jumps":     {jumps.Uprobes, []string{"-fcf-protection"}},
		"breakpoints":                 {jumps.Breakpoints, nil},
		"breakpoints, prefixed jumps": {jumps.Breakpoints, []string{"-fcf-protection"}},
	} {
		t.Run(name, func(t *testing.T) {
			needs(t, test.probes)
			argv := append([]string{"-O1", "-no-pie", "-pthread", "testdata/jumps.c", "-ldl"}, test.flags...)
			path := testenv.Compile(t, "jumps", "gcc", argv...)
			cmd := start(t, path, "threads")
			// On a crowded machine, the program may not run in a window in which a jump is counted.
			// For arm64, gcc compiles choose to conditional jumps.
			seen, last := map[string]bool{"choose": runtime.GOARCH == "arm64"}, jumps.Stats{}
			without := map[string]bool{} // functions whose jumps cannot be counted
			if !testenv.HasBreakpoints(t) {
				info, err := os.ReadFile("/proc/cpuinfo")
				if err != nil {
					t.Fatal(err)
				}
				without["choose"], without["call"] = len(test.flags) > 0, bytes.Contains(info, []byte(" user_shstk "))
			}
			testenv.Await(t, func() bool {
				t.Run("count", func(t *testing.T) {
					p, err := open(path)
					if err != nil {
						t.Fatal(err)
					}
					p.probes = test.probes
					var c *jumps.Counter
					c, last = measure(t, p, target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}}, 12, 1)
					p.checkShares(t, c.Counts(), seen)
					p.checkUncountable(t, c, without, seen)
					p.checkText(t, cmd.Process.Pid, path)
				})
				return t.Failed() || seen["quarter"] && seen["choose"] && seen["call"]
			}, func() string {
				return fmt.Sprintf("got %v with enough hits, want quarter, choose and call; last %+v", seen, last)
			})
		})
	}
}

// checkShares compares the counted shares with the program's own, and adds the functions to seen that
// have enough hits for that.
func (p *program) checkShares(t *testing.T, counts *jumps.Counts, seen map[string]bool) {
	t.Helper()
	quarter, quarterSize := p.symbol(t, "quarter")
	choose, chooseSize := p.symbol(t, "choose")
	call, callSize := p.symbol(t, "call")
	for _, j := range counts.Jumps {
		slack, enough := j.Windows, 4*j.Windows // breakpoints have at least 8 hits in a window
		if !j.Breakpoint {
			slack, enough = 2*j.Windows, 40*j.Windows // windows of both threads
		}
		switch {
		case j.Address-quarter < quarterSize:
			seen["quarter"] = seen["quarter"] || j.Hits > enough
			quarter := j.Taken // of je, which is for the call in which i % 4 is 0
			if j.Instruction.Condition&1 != 0 || j.Instruction.Test.Nonzero {
				quarter = j.Hits - j.Taken // of jne
			}
			if 4*quarter > j.Hits+4*slack || 4*quarter+4*slack < j.Hits {
				t.Errorf("quarter: %d of %d hits of %+v in %d windows were taken, want a quarter, or three of jne", j.Taken, j.Hits, j.Instruction, j.Windows)
			}
		case j.Address-choose < chooseSize && j.Instruction.Kind == instruction.IndirectJump:
			seen["choose"] = seen["choose"] || j.Hits > enough
			for to, n := range targetsOf(t, counts, j) {
				if to-choose >= chooseSize || 8*n > j.Hits+8*slack || 8*n+8*slack < j.Hits {
					t.Errorf("choose: %d of %d hits in %d windows led to %#x, want an eighth within the function", n, j.Hits, j.Windows, to)
				}
			}
		case j.Address-call < callSize && j.Instruction.Kind == instruction.IndirectCall:
			seen["call"] = seen["call"] || j.Hits > enough
			for i := range 4 {
				callee, _ := p.symbol(t, fmt.Sprintf("callee%d", i))
				if n := targetsOf(t, counts, j)[callee]; 4*n > j.Hits+4*slack || 4*n+4*slack < j.Hits {
					t.Errorf("call: %d of %d hits in %d windows led to callee%d, want a quarter", n, j.Hits, j.Windows, i)
				}
			}
		}
	}
}

// checkUncountable checks that the indirect jumps and calls of the given functions, and no other ones,
// cannot be counted, and adds the functions to seen.
func (p *program) checkUncountable(t *testing.T, c *jumps.Counter, without, seen map[string]bool) {
	t.Helper()
	uncountable := c.Uncountable()
	for _, function := range []string{"choose", "call"} {
		addr, size := p.symbol(t, function)
		for _, j := range c.Counts().Jumps {
			if j.Address-addr >= size || j.Instruction.Kind == instruction.ConditionalJump {
				continue
			}
			if uncountable[j.Address] != without[function] {
				t.Errorf("%s: %#x cannot be counted: %t, want %t", function, j.Address, uncountable[j.Address], without[function])
			}
			seen[function] = seen[function] || without[function]
		}
	}
	s := stats(t, c)
	if (s.NoBreakpoints == "") != testenv.HasBreakpoints(t) || len(uncountable) != int(s.Refused) {
		t.Errorf("got %d jumps that cannot be counted and %+v", len(uncountable), s)
	}
}

// targetsOf returns the counts of the targets of an indirect jump or call. They must add up to its
// hits.
func targetsOf(t *testing.T, counts *jumps.Counts, j jumps.Jump) map[uint64]uint64 {
	t.Helper()
	targets, sum := map[uint64]uint64{}, uint64(0)
	for to, n := range counts.Targets {
		if to.From == j.Address {
			targets[to.To] += n
			sum += n
		}
	}
	if sum != j.Hits {
		t.Errorf("%#x: %d hits and %d targets, want as many", j.Address, j.Hits, sum)
	}
	return targets
}

// A counter that was not started can be stopped and closed.
func TestStopEarly(t *testing.T) {
	needsUprobeMulti(t)
	p := openJumps(t)
	c, err := jumps.New(p.options(target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Stop(), c.Close()); err != nil {
		t.Error(err)
	}
}

// checkText waits until the code of a process equals its file's, which must happen at once
// if nothing counts any more.
func (p *program) checkText(t *testing.T, pid int, path string) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compared := false
	for line := range strings.Lines(string(maps)) {
		var start, end, offset uint64
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x", &start, &end, &rights, &offset); n < 4 || rights != "r-xp" || !strings.HasSuffix(strings.TrimSpace(line), path) {
			continue
		}
		memory := make([]byte, end-start)
		read := func() []byte {
			n, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &memory[0], Len: uint64(len(memory))}}, []unix.RemoteIovec{{Base: uintptr(start), Len: len(memory)}}, 0)
			if err != nil {
				t.Fatal(err)
			}
			return memory[:n]
		}
		want := file[offset:min(offset+end-start, uint64(len(file)))]
		testenv.Await(t, func() bool { return bytes.HasPrefix(read(), want) }, func() string {
			return fmt.Sprintf("the code of process %d differs from %s", pid, path)
		})
		compared = true
	}
	if !compared {
		t.Errorf("no code of %s in process %d is the same:\n%s", path, pid, maps)
	}
}

// rounds returns the program's own count of its progress.
func (p *program) rounds(t *testing.T, pid int) uint64 {
	t.Helper()
	at, _ := p.symbol(t, "rounds")
	b := make([]byte, 8)
	var err error
	testenv.Await(t, func() bool { // in the middle of execve, its memory is empty
		_, err = unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: uintptr(at), Len: 8}}, 0)
		return !errors.Is(err, unix.EFAULT)
	}, func() string { return "the program cannot be read" })
	if err != nil {
		t.Fatalf("the program has ended: %v", err)
	}
	return binary.NativeEndian.Uint64(b)
}

// progresses waits until the program has gone on.
func (p *program) progresses(t *testing.T, pid int) {
	t.Helper()
	before := p.rounds(t, pid)
	testenv.Await(t, func() bool { return p.rounds(t, pid) >= before+2 }, func() string { return "the program does not go on" })
}

// Waits of processes that do not execute the code are no stalls by the probes.
func TestStallsOfOthers(t *testing.T) {
	testenv.EveryKernel(t)
	needsUprobeMulti(t)
	p := openJumps(t)
	stop, waited := make(chan struct{}), make(chan struct{})
	go func() { // waits uninterruptibly, most of the time
		defer close(waited)
		for {
			select {
			case <-stop:
				return
			default:
				_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
			}
		}
	}()
	defer func() {
		close(stop)
		testenv.Receive(t, waited, "a wait does not end")
	}()
	_, s := measure(t, p, target.Target{Scope: target.System}, 3, 0) // the program does not run
	if s.LongestStall != 0 {
		t.Errorf("%+v: a thread of another program was stalled for %v", s, s.LongestStall)
	}
}

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL.
const membarrierGlobal = 1

// SIGKILL of the counting process, at any time, leaves the program and its code as they
// were.
func TestKill(t *testing.T) {
	needsUprobeMulti(t)
	p := openJumps(t)
	cmd := start(t, p.path, "threads")
	times := 3
	if testenv.IsLong() {
		times = 200
	}
	for i := range times {
		helper := p.helper(t, cmd.Process.Pid)
		time.Sleep(time.Duration(i*37%100) * time.Millisecond)
		_ = helper.Process.Kill()
		_ = helper.Wait()
		p.checkText(t, cmd.Process.Pid, p.path)
		p.progresses(t, cmd.Process.Pid)
	}
}

// helper starts to count the jumps of a process in another process.
func (p *program) helper(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	helper := exec.Command("/proc/self/exe")
	of := fmt.Sprintf("%d:%s", pid, p.path)
	if p.probes == jumps.Breakpoints {
		of += byBreakpoints
	}
	helper.Env = append(os.Environ(), helperVar+"="+of)
	helper.Stderr = os.Stderr
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = helper.Process.Kill()
		_ = helper.Wait()
	})
	if n, err := out.Read(make([]byte, 1)); n != 1 {
		t.Fatalf("the helper has not begun: %v", err)
	}
	return helper
}

// If the process that attaches probes is killed between two requests, another one attaches them. There
// are no requests while the program is traced.
func TestKillHelper(t *testing.T) {
	needsUprobeMulti(t)
	p := openJumps(t)
	cmd := start(t, p.path, "threads")
	c, err := p.count(target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	for range 3 {
		before := windows(t, c, 2)
		if err := unix.PtraceSeize(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		awaitStats(t, c, "no more windows", func(s jumps.Stats) bool {
			return s.Traced >= before.Traced+2 || s.Held > before.Held
		})
		signalHelper(t, unix.SIGKILL)
		stopTracing(t, cmd.Process.Pid)
	}
	windows(t, c, 2)
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	p.checkText(t, cmd.Process.Pid, p.path)
	p.progresses(t, cmd.Process.Pid)
}

// signalHelper sends a signal to the process that attaches probes for this one.
func signalHelper(t *testing.T, signal unix.Signal) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range all {
		children, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has exited
		}
		for _, field := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasPrefix(string(line), "fulgur-uprobes") {
				if err := unix.Kill(pid, signal); err != nil {
					t.Fatal(err)
				}
				found++
			}
		}
	}
	if found == 0 { // more than one if an earlier one still ends
		t.Fatal("there is no helper process")
	}
}

// There are no windows while a thread of a process is traced, whichever it is.
func TestTraced(t *testing.T) {
	needsUprobeMulti(t)
	for _, name := range []string{"first thread", "another thread"} {
		t.Run(name, func(t *testing.T) {
			p := openJumps(t)
			pid := start(t, p.path, "threads").Process.Pid
			tid := pid
			testenv.Await(t, func() bool {
				tids, err := procfs.Threads(pid)
				if name != "first thread" {
					tid = slices.Max(append(tids, 0))
				}
				return err == nil && len(tids) > 1
			}, func() string { return "the program has no second thread" })
			runtime.LockOSThread() // the tracer is a thread
			defer runtime.UnlockOSThread()
			if err := unix.PtraceSeize(tid); err != nil {
				t.Fatal(err)
			}
			c, err := p.count(target.Target{Scope: target.Processes, PIDs: []int{pid}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			awaitStats(t, c, "two refused windows", func(s jumps.Stats) bool {
				if s.Windows > 0 {
					t.Fatal("a window was opened while the process was traced")
				}
				return s.Traced >= 2
			})
			traced := target.Target{Scope: target.Processes, PIDs: []int{pid}}
			if err := uprobe.CheckTracers(traced); err == nil || !strings.Contains(err.Error(), "detach it first") {
				t.Errorf("got %v, want that the process is traced", err)
			}
			for left, want := range map[int]bool{0: tid == pid, 100: true} {
				found := false
				for range procfs.Tracers(pid, &left) {
					found = true
				}
				if found != want {
					t.Errorf("found a tracer: %v, want %v", found, want)
				}
			}
			stopTracing(t, tid)
			windows(t, c, 1)
			if err := c.Stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// stopTracing detaches this thread from a thread that it traces.
func stopTracing(t *testing.T, tid int) {
	t.Helper()
	if err := unix.PtraceInterrupt(tid); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(tid, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceDetach(tid); err != nil {
		t.Fatal(err)
	}
}

// There are no probes while the counting process is suspended with Ctrl-Z.
func TestSuspend(t *testing.T) {
	needsUprobeMulti(t)
	p := openJumps(t)
	cmd := start(t, p.path, "threads")
	helper := p.helper(t, cmd.Process.Pid)
	for range 5 {
		if err := helper.Process.Signal(unix.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(helper.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("the helper has not stopped: status %#x, %v", status, err)
		}
		p.checkText(t, cmd.Process.Pid, p.path)
		if err := helper.Process.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// Programs that fork, execute themselves and exit are not harmed while their jumps are
// counted.
func TestProcesses(t *testing.T) {
	testenv.Long(t)
	needsUprobeMulti(t)
	path := testenv.Compile(t, "jumps", "gcc", "-O1", "-no-pie", "-pthread", "testdata/jumps.c", "-ldl")
	for _, mode := range []string{"fork", "exec"} {
		for _, children := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, children %t", mode, children), func(t *testing.T) {
				p, err := open(path)
				if err != nil {
					t.Fatal(err)
				}
				cmd := start(t, path, mode)
				measure(t, p, target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}, Children: children}, 5, 1)
				p.rounds(t, cmd.Process.Pid) // it is alive
				if mode == "fork" {
					p.progresses(t, cmd.Process.Pid)
				}
			})
		}
	}
}

// A library that is unloaded and loaded again is not harmed.
func TestUnload(t *testing.T) {
	testenv.Long(t)
	needsUprobeMulti(t)
	main := openJumps(t)
	library, err := open(testenv.Compile(t, "libjumps.so", "gcc", "-O1", "-shared", "-fPIC", "testdata/library.c"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, main.path, "dlopen", library.path)
	measure(t, library, target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}}, 5, 1)
	main.progresses(t, cmd.Process.Pid)
}
