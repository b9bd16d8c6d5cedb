package stepping

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/tracing"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// TestProbes steps a program while uprobes on its instructions come and go, as those of other
// tools, or of fulgur itself. The kernel reports the step of such an instruction by a signal with
// another si_code.
func TestProbes(t *testing.T) {
	testenv.Root(t)
	testenv.EveryKernel(t)
	uprobes := readUprobeType(t)
	bin := compile(t, "probed", "-no-pie")
	offsets := probeOffsets(t, bin, 5)
	for name, act := range map[string]func(t *testing.T, b *board, pid int){"alone": nil, "SIGCONT": continues} {
		t.Run(name, func(t *testing.T) {
			cmd := launch(t, bin)
			pid := cmd.Process.Pid
			s := start(t, Options{MaxOverhead: 1000}, pid)
			go func() {
				for range s.Samples() {
				}
			}()
			steps := func() uint64 {
				stats, _ := s.Stats()
				return stats.Steps
			}
			testenv.Await(t, func() bool { return steps() > 0 }, func() string { return "no step" })
			var probing sync.WaitGroup
			end := time.Now().Add(floodTime())
			for _, offset := range offsets { // side by side, because removal takes long
				probing.Go(func() {
					for time.Now().Before(end) {
						err := blinkUprobe(uprobes, bin, offset, pid)
						if errors.Is(err, unix.ESRCH) {
							return // the target has ended
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for act != nil && time.Now().Before(end) && !hasEnded(t, pid) {
				act(t, nil, pid)
			}
			probing.Wait()
			before := steps()
			testenv.Await(t, func() bool { return steps() > before || hasEnded(t, pid) }, func() string { return "no more steps" })
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if hasEnded(t, pid) {
				state, err := cmd.Process.Wait()
				t.Fatalf("the target ended: %v, %v", state, err)
			}
			if tracer := tracerOf(t, pid); tracer != 0 {
				t.Errorf("the target is still traced by process %d", tracer)
			}
			stats, refused := s.Stats()
			t.Logf("%+v %v", stats, refused)
		})
	}
}

// readUprobeType returns the type of perf events for uprobes. It skips the test if programs with
// uprobes cannot be stepped.
func readUprobeType(t *testing.T) uint32 {
	t.Helper()
	if runtime.GOARCH == "arm64" {
		testenv.Unsupported(t, "arm64's kernel warns of each step of a thread that executed a uprobe")
	}
	text, err := os.ReadFile("/sys/bus/event_source/devices/uprobe/type")
	if errors.Is(err, fs.ErrNotExist) {
		testenv.Unsupported(t, "the kernel has no uprobes")
	}
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return uint32(number)
}

// probeOffsets returns the file offsets of a program's symbols that begin with "probe_".
func probeOffsets(t *testing.T, bin string, want int) (offsets []uint64) {
	t.Helper()
	f, err := elffile.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range testenv.Symbols(t, bin) {
		if strings.HasPrefix(s.Name, "probe_") {
			offset, ok := f.Offset(s.Value)
			if !ok {
				t.Fatalf("%s is not in the file", s.Name)
			}
			offsets = append(offsets, offset)
		}
	}
	slices.Sort(offsets)
	if len(offsets) != want {
		t.Fatalf("got %d instructions to probe, want %d", len(offsets), want)
	}
	return offsets
}

// blinkUprobe puts a uprobe on an instruction of a process, and removes it.
func blinkUprobe(uprobes uint32, bin string, offset uint64, pid int) error {
	fd, err := openUprobe(uprobes, 0, bin, offset, pid)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// returnProbe is the flag of a uprobe on the return of a function.
const returnProbe = 1

// openUprobe puts a uprobe on an instruction of a process, until the result is closed.
func openUprobe(uprobes uint32, flags uint64, bin string, offset uint64, pid int) (fd int, err error) {
	path, err := unix.BytePtrFromString(bin)
	if err != nil {
		return 0, err
	}
	attr := unix.PerfEventAttr{
		Type:   uprobes,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: flags,
		Ext1:   uint64(uintptr(unsafe.Pointer(path))), // uprobe_path
		Ext2:   offset,                                // probe_offset
	}
	fd, err = unix.PerfEventOpen(&attr, pid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	runtime.KeepAlive(path)
	if err != nil {
		return 0, fmt.Errorf("open a uprobe: %w", err)
	}
	return fd, nil
}

// TestReturnProbe steps a program while the kernel makes a function return to a page of its own,
// whose instructions are not the program's.
func TestReturnProbe(t *testing.T) {
	testenv.Root(t)
	testenv.EveryKernel(t)
	uprobes := readUprobeType(t)
	bin := compile(t, "returned", "-static", "-no-pie") // no loader, which runs first
	cmd := launch(t, bin)
	pid := cmd.Process.Pid
	fd, err := openUprobe(uprobes, returnProbe, bin, probeOffsets(t, bin, 1)[0], pid)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s := start(t, Options{MaxOverhead: 1000}, pid)
	const limit = 1 << 24 // above the program, which is at a fixed address
	end := time.Now().Add(floodTime())
	for returned := false; !returned || time.Now().Before(end); {
		for _, e := range collect(t, s, 1)[0].Entries {
			if e.From >= limit {
				t.Fatalf("got a branch from %#x, outside of the program", e.From)
			}
			returned = returned || e.To >= limit
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if hasEnded(t, pid) {
		state, err := cmd.Process.Wait()
		t.Errorf("the target ended: %v, %v", state, err)
	}
}

// A SIGTRAP of the program that is pending when a burst begins is delivered.
func TestPending(t *testing.T) {
	if testenv.InVM() {
		testenv.Unsupported(t, "QEMU's processor lacks INT1")
	}
	cmd := launch(t, compile(t, "icebp"))
	s := start(t, Options{MaxOverhead: 1000}, cmd.Process.Pid)
	const enough = 50 // bursts that begin right after INT1, or would
	testenv.Await(t, func() bool {
		stats, _ := s.Stats()
		return stats.Sensitive >= enough || hasEnded(t, cmd.Process.Pid)
	}, func() string { return "no more bursts" })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if hasEnded(t, cmd.Process.Pid) {
		state, err := cmd.Process.Wait()
		t.Errorf("the target ended: %v, %v", state, err)
	}
}

// After a step, the program counter is the same if the instruction leads to itself.
func TestIsStep(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid := launch(t, compile(t, "cycle", "-static", "-no-pie")).Process.Pid
	if err := tracing.Seize(pid); err != nil {
		t.Fatal(err)
	}
	if err := tracing.Interrupt(pid); err != nil {
		t.Fatal(err)
	}
	if _, err := tracing.Wait(0, 0); err != nil {
		t.Fatal(err)
	}
	pc, err := readPC(pid)
	if err != nil {
		t.Fatal(err)
	}
	own, other := int32(pid), int32(os.Getpid())
	for name, test := range map[string]struct {
		code, sender int32
		from         uint64
		in           instruction
		want         bool
	}{
		"step":                {trapTrace, 0, pc - 1, instruction{}, true},
		"repetition":          {trapTrace, 0, pc, instruction{kind: repeating}, true},
		"no reason":           {trapBreakpoint, 0, pc - 1, instruction{}, true},
		"repetition, none":    {trapBreakpoint, 0, pc, instruction{kind: repeating}, true},
		"uprobe":              {fromUser, own, pc - 1, instruction{}, true},
		"repetition, uprobe":  {fromUser, own, pc, instruction{kind: repeating}, true},
		"jump to itself":      {fromUser, own, pc, instruction{kind: jump, target: pc}, true},
		"another thread":      {fromUser, own, pc, instruction{}, false},
		"and a jump":          {fromUser, own, pc, instruction{kind: jump}, false},
		"another process":     {fromUser, other, pc, instruction{kind: repeating}, false},
		"breakpoint":          {0x80, 0, pc - 1, instruction{}, false}, // SI_KERNEL
		"tgkill":              {-6, own, pc - 1, instruction{}, false},
		"hardware breakpoint": {4, 0, pc - 1, instruction{}, false}, // TRAP_HWBKPT
	} {
		tr := tracer{pid: pid, tid: pid, pc: test.from, in: test.in}
		if got := tr.isStep(tracing.Info{Signo: int32(unix.SIGTRAP), Code: test.code, PID: test.sender}); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
