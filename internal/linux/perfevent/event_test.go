package perfevent

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/testenv"
)

// open opens an event for thread pid on cpu, and closes it when the test ends.
func open(t *testing.T, a Attr, pid, cpu int) *Event {
	t.Helper()
	testenv.Root(t)
	e, err := Open(a, pid, cpu)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestOpenErrors(t *testing.T) {
	testenv.Root(t)
	rate, err := MaxSampleRate()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		attr Attr
		pid  int
		want error
		hint string
	}{
		{"no such process", Attr{Type: unix.PERF_TYPE_SOFTWARE}, 1 << 22, unix.ESRCH, "no such process"},
		{"no such event", Attr{Type: 1 << 20}, 0, unix.ENOENT, "cpu-clock"},
		{"too fast", Attr{Type: unix.PERF_TYPE_SOFTWARE, Frequency: rate + 1}, 0, unix.EINVAL, "perf_event_max_sample_rate"},
	} {
		_, err := Open(tc.attr, tc.pid, -1)
		var open *OpenError
		if !errors.As(err, &open) || !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.hint) {
			t.Errorf("%s: got error %v, want %v with hint %q", tc.name, err, tc.want, tc.hint)
		}
	}
}

func TestDefaultEvents(t *testing.T) {
	testenv.Root(t)
	specs, err := DefaultEvents()
	if err != nil || len(specs) == 0 {
		t.Fatalf("DefaultEvents(): got %v, %v; want some", specs, err)
	}
	for _, s := range specs {
		if err := s.probe(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

func TestSysctls(t *testing.T) {
	if n, err := MaxSampleRate(); err != nil || n == 0 {
		t.Errorf("MaxSampleRate(): got %d, %v; want a positive rate", n, err)
	}
	if n, err := MaxStack(); err != nil || n == 0 {
		t.Errorf("MaxStack(): got %d, %v; want a positive depth", n, err)
	}
}

// TestSideband compares a child's records with its actions, and their times with the
// clock.
func TestSideband(t *testing.T) {
	testenv.OneKernel(t)
	runtime.LockOSThread() // the event follows this thread's children
	defer runtime.UnlockOSThread()
	cpus, err := OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	var rings []*Ring
	for _, cpu := range cpus {
		r, err := open(t, Attr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
			Mmap2: true, Comm: true, CommExec: true, Task: true, SampleIDAll: true, MonotonicClock: true, Watermark: 1,
		}, -1, cpu).Map(64)
		if err != nil {
			t.Fatal(err)
		}
		rings = append(rings, r)
		requestBuildIDs(t, cpu)
	}
	before := monotonic.Now()
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	after := monotonic.Now()
	var forks, execs, exits, mmaps int
	for _, r := range rings {
		_, err := r.Read(func(rec Record) {
			var mine bool
			switch rec := rec.(type) {
			case Fork:
				if mine = rec.PID == cmd.Process.Pid; mine {
					forks++
					if rec.PPID != os.Getpid() {
						t.Errorf("got parent %d, want %d", rec.PPID, os.Getpid())
					}
				}
			case Exit:
				if mine = rec.PID == cmd.Process.Pid; mine {
					exits++
				}
			case Comm:
				if mine = rec.PID == cmd.Process.Pid && rec.Exec; mine {
					execs++
					if rec.Comm != "true" {
						t.Errorf("got exec of %q, want true", rec.Comm)
					}
				}
			case Mmap2:
				mine = rec.PID == cmd.Process.Pid
				if mine && strings.HasSuffix(rec.Filename, "/bin/true") {
					mmaps++
					checkInode(t, rec)
				}
			default:
				mine = false
			}
			if mine && (rec.When() < before || rec.When() > after) {
				t.Errorf("got %+v, want a time from %d to %d", rec, before, after)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
	if forks != 1 || execs != 1 || exits != 1 || mmaps != 1 {
		t.Errorf("got %d forks, %d execs, %d mappings and %d exits, want one each", forks, execs, mmaps, exits)
	}
}

// requestBuildIDs opens an event on a CPU as perf record --buildid-mmap does. It must not change the
// records of other events.
func requestBuildIDs(t *testing.T, cpu int) {
	t.Helper()
	const buildID = 1 << 34 // build_id of struct perf_event_attr, since Linux 5.12
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Size: unix.PERF_ATTR_SIZE_VER7,
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | buildID,
	}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Logf("without build IDs: %v", err)
		return
	}
	ring, err := unix.Mmap(fd, 0, 9*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	t.Cleanup(func() {
		if err := errors.Join(unix.Munmap(ring), unix.Close(fd)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkInode(t *testing.T, m Mmap2) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(m.Filename, &st); err != nil {
		t.Fatal(err)
	}
	if m.Ino != st.Ino {
		t.Errorf("%s: got inode %d, want stat's %d", m.Filename, m.Ino, st.Ino)
	}
}

// TestAttachBPF counts the samples of a busy thread with a program.
func TestAttachBPF(t *testing.T) {
	testenv.Root(t)
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.PerfEvent, License: "GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a := Spec{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK}.Attr()
	a.Frequency, a.Disabled, a.SampleIDAll = 999, true, true
	e := open(t, a, 0, -1)
	if err := e.AttachBPF(prog.FD()); err != nil {
		t.Fatal(err)
	}
	r, err := e.Map(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Enable(); err != nil {
		t.Fatal(err)
	}
	var n uint64
	for deadline := time.Now().Add(testenv.TimeLimit()); n < 10 && time.Now().Before(deadline); {
		if err := counts.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Disable(); err != nil {
		t.Fatal(err)
	}
	if n < 10 {
		t.Errorf("got %d samples, want at least 10", n)
	}
	if _, err := r.Read(func(rec Record) {
		if o, ok := rec.(Other); ok {
			t.Errorf("got a record of type %d, although the program keeps the samples", o.Type)
		}
	}); err != nil {
		t.Error(err)
	}
}
