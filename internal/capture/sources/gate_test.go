package sources

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/softirq"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/rcu"
	"fulgur/internal/testenv"
)

// Attached and enabled sources count only while the gate is open.
func TestGate(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	self := target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}
	for name, test := range map[string]struct {
		target target.Target
		what   source.Subject
		act    func(*testing.T)
	}{
		"oncpu":   {self, oncpu.New(oncpu.Config{Event: "cpu-clock", Frequency: 999}), compute},
		"offcpu":  {self, offcpu.New(offcpu.Config{States: offcpu.AllStates}), func(*testing.T) { time.Sleep(time.Millisecond) }},
		"faults":  {self, faults.New(faults.Config{}), fault},
		"softirq": {target.Target{}, softirq.New(), sendPacket},
	} {
		t.Run(name, func(t *testing.T) {
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

// sendPacket sends a packet to this machine, which a soft interrupt receives.
func sendPacket(t *testing.T) {
	c, err := net.Dial("udp", "127.0.0.1:9") // discard
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("packet")) // nobody listens, which a second packet would report
}
