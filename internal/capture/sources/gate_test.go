package sources

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/hits"
	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/slow"
	"fulgur/internal/capture/softirq"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/rcu"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/testenv"
)

// An occasion makes a source count.
type occasion struct {
	target target.Target
	what   source.Subject
	act    func(*testing.T)
}

// occasions returns an occasion of each command whose source this process can make count.
func occasions() map[doctor.Command]occasion {
	self := target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}
	return map[doctor.Command]occasion{
		doctor.Profile: {self, oncpu.New(oncpu.Config{Event: "cpu-clock", Frequency: 999}), compute},
		doctor.OffCPU:  {self, offcpu.New(offcpu.Config{States: offcpu.AllStates}), func(*testing.T) { time.Sleep(time.Millisecond) }},
		doctor.Faults:  {self, faults.New(faults.Config{}), fault},
		doctor.SoftIRQ: {target.Target{}, softirq.New(), sendPacket},
		doctor.Count:   {self, hits.New(hits.Config{Events: []string{"syscalls:sys_enter_getppid"}}), call},
		doctor.Slow: {self, slow.New(slow.Config{
			Config: latency.Config{Events: []string{"syscalls:sys_enter_getppid"}}, Over: time.Nanosecond,
		}), call},
		doctor.Latency: {self, latency.New(latency.Config{Events: []string{"syscalls:sys_enter_getppid"}}), call},
	}
}

// elsewhere has the commands without an occasion, and the reason.
var elsewhere = map[doctor.Command]string{
	doctor.BlockIO: "it needs a disk, which VMs lack",
	doctor.Alloc:   "it needs a program with an allocator; see test/e2e",
}

// Each source has an occasion, or a reason why not.
func TestOccasions(t *testing.T) {
	testenv.AnyKernel(t)
	all := occasions()
	for _, subject := range All() {
		c := subject.Command()
		if _, ok := all[c]; ok == (elsewhere[c] != "") {
			t.Errorf("%s: got an occasion: %t, and the reason %q to have none; want one of the two", c, ok, elsewhere[c])
		}
	}
}

// Attached and enabled sources count only while the gate is open. Their stacks have names of tasks.
func TestGate(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	for name, test := range occasions() {
		t.Run(string(name), func(t *testing.T) {
			if err := test.what.Complete(source.Common{Target: &test.target}); err != nil {
				t.Fatal(err)
			}
			if err := test.what.Choose(); err != nil {
				t.Fatal(err)
			}
			all, err := test.what.Load(probe.Options{Scope: test.target.Scope, MaxDepth: 1, SkipUser: true})
			if err != nil {
				t.Fatal(err)
			}
			s := all[0]
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			samples := func() uint64 {
				t.Helper()
				stats, err := s.Stats()
				if err != nil {
					t.Fatal(err)
				}
				return stats.Samples
			}
			if err := errors.Join(s.Attach(test.target), s.Enable()); err != nil {
				t.Fatal(err)
			}
			gate := s.(interface{ Gate() *probe.Gate }).Gate()
			for range 10 {
				test.act(t)
			}
			if n := samples(); n != 0 {
				t.Errorf("got %d samples before the gate was open", n)
			}
			if err := errors.Join(gate.Open(), s.Begin()); err != nil {
				t.Fatal(err)
			}
			testenv.Await(t, func() bool {
				test.act(t)
				return samples() > 0
			}, func() string { return "no samples while the gate is open" })
			named := 0
			testenv.Await(t, func() bool {
				test.act(t)
				named += namedStacks(t, s)
				return named > 0
			}, func() string { return "no stacks while the gate is open" })
			// The end of the measurement adds what is in progress.
			if err := errors.Join(gate.Shut(), s.End(), rcu.Wait()); err != nil {
				t.Fatal(err)
			}
			before := samples()
			for range 10 {
				test.act(t)
			}
			if n := samples(); n != before {
				t.Errorf("got %d samples after the gate was shut", n-before)
			}
		})
	}
}

// namedStacks returns the number of new stacks of processes in the ring of a source. Each has the name of its
// task.
func namedStacks(t *testing.T, s source.Source) (n int) {
	t.Helper()
	if err := s.Ring().ReadTo(s.Ring().Position(), func(r []byte) error {
		if bpf.RecordType(r[0]) != bpf.RecordStack {
			return nil
		}
		var record bpf.StackRecord
		if err := ringbuf.Copy(&record, r, unsafe.Offsetof(record.Frames)); err != nil {
			return err
		}
		if record.Pid == 0 {
			return nil // the kernel's part of a wait has no task of its own
		}
		n++
		if record.Comm[0] == 0 {
			t.Errorf("got no name of task %d of process %d", record.Tid, record.Pid)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// compute uses the CPU for several periods.
func compute(*testing.T) {
	begin, err := testenv.CPUTime(os.Getpid())
	for now := begin; err == nil && now-begin < 5*time.Millisecond; now, err = testenv.CPUTime(os.Getpid()) {
	}
}

// fault touches a new page.
func fault(t *testing.T) {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	page[0] = 1
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
}

// call makes a system call.
func call(*testing.T) { unix.Getppid() }

// sendPacket sends a packet to this machine, which a soft interrupt receives.
func sendPacket(t *testing.T) {
	c, err := net.Dial("udp", "127.0.0.1:9") // discard
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("packet")) // nobody listens, which a second packet would report
}
