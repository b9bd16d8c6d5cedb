// Package pmu drives the PMU of the rig's machines: a kernel module (in module/)
// that delivers prepared branch records. It is loaded only while a test runs that
// requests it; otherwise the machines have no PMU.
package pmu

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// Module is the module's name.
const Module = "branchpmu"

const device = "/dev/" + Module

// Names of the PMU. With the name CPU, it also gets the kernel's generic hardware
// events.
const (
	CPU = "cpu"
	Own = Module
)

// Options configure the PMU.
type Options struct {
	// NMI makes it interrupt by NMI, like real PMUs, instead of a timer's
	// interrupt.
	NMI bool
	// Depth is the number of records that the hardware claims to have; 0 means
	// 32, None means no branch recording.
	Depth int
	None  bool
	// Period is the minimum time between two samples of an event; 0 means 50 µs.
	Period time.Duration
}

// Load gives the machine a PMU until the test ends, without prepared records. It
// skips the test outside of the rig, and on machines that the module does not
// support.
func Load(t testing.TB, o Options) {
	t.Helper()
	testenv.VM(t)
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "the rig's PMU is one of amd64")
	}
	err := testenv.LoadModule(Module)
	if errors.Is(err, fs.ErrNotExist) {
		testenv.Unsupported(t, "the rig has no PMU for this kernel, as it says at its end")
	}
	if err == nil {
		err = reset()
	}
	if err == nil {
		err = o.set()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := setParameter("present", false); err != nil {
			t.Error(err)
		}
	})
}

// reset discards prepared records. It waits for the last events to be freed, which
// the kernel does a while after they are closed.
func reset() error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(device, os.O_WRONLY|os.O_TRUNC, 0)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// set writes the module's parameters. The parameter that admits events comes last.
func (o Options) set() error {
	depth := cmp.Or(o.Depth, 32)
	if o.None {
		depth = 0
	}
	for _, p := range []struct {
		name  string
		value any
	}{
		{"nmi", o.NMI},
		{"depth", depth},
		{"min_period", cmp.Or(o.Period, 50*time.Microsecond).Nanoseconds()},
		{"present", true},
	} {
		if err := setParameter(p.name, p.value); err != nil {
			return err
		}
	}
	return nil
}

func setParameter(name string, value any) error {
	text := fmt.Sprint(value)
	switch value {
	case true:
		text = "Y"
	case false:
		text = "N"
	}
	return os.WriteFile(path.Join("/sys/module/"+Module, "parameters", name), []byte(text), 0)
}

// Record is a branch record: struct perf_branch_entry of <linux/perf_event.h>.
type Record struct{ From, To, Flags uint64 }

// Queue holds the records for the samples of a process.
type Queue struct {
	// PID is the process ID; 0 means all processes.
	PID int
	// Window is the number of records per sample, up to 64.
	Window int
	// Records are delivered one window at a time, the newest record of a window
	// first. The last window may be shorter.
	Records []Record
	// Repeat starts over after the last window; otherwise later samples have no
	// records.
	Repeat bool
}

// Add prepares q.
func Add(q Queue) error {
	head := struct {
		TGID                int32
		Window, Repeat, Pad uint32
	}{TGID: int32(q.PID), Window: uint32(q.Window)}
	if q.Repeat {
		head.Repeat = 1
	}
	var b bytes.Buffer
	for _, part := range []any{head, q.Records} {
		if err := binary.Write(&b, binary.NativeEndian, part); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes()) // one write is one queue
	return errors.Join(err, f.Close())
}

// Status counts the PMU's activity since [Load].
type Status struct {
	// Samples is the number of samples of all kinds of events, NMIs the number
	// of NMIs.
	Samples, NMIs uint64
	// Events is the number of open events.
	Events int
	// Queues are the prepared queues, in order.
	Queues []QueueStatus
}

// QueueStatus is the progress of a queue.
type QueueStatus struct {
	PID int
	// Windows is the number of windows. Taken is the number of samples,
	// including those after the last window.
	Windows, Taken int
}

// Left returns the number of windows that no sample has used yet.
func (q QueueStatus) Left() int { return max(0, q.Windows-q.Taken) }

// ReadStatus reads the PMU's status.
func ReadStatus() (Status, error) {
	f, err := os.Open(device)
	if err != nil {
		return Status{}, err
	}
	defer f.Close()
	b := make([]byte, 1<<14)
	n, err := f.Read(b) // one read is one answer
	if err != nil {
		return Status{}, err
	}
	head, rest, _ := strings.Cut(string(b[:n]), "\n")
	var s Status
	if _, err := fmt.Sscanf(head, "samples %d nmis %d events %d", &s.Samples, &s.NMIs, &s.Events); err != nil {
		return s, fmt.Errorf("read %s: %q: %w", device, head, err)
	}
	for line := range strings.Lines(rest) {
		var q QueueStatus
		if _, err := fmt.Sscanf(line, "process %d windows %d taken %d", &q.PID, &q.Windows, &q.Taken); err != nil {
			return s, fmt.Errorf("read %s: %q: %w", device, line, err)
		}
		s.Queues = append(s.Queues, q)
	}
	return s, nil
}

// Left reports whether there are windows that no sample has used yet.
func (s Status) Left() bool {
	return slices.ContainsFunc(s.Queues, func(q QueueStatus) bool { return q.Left() > 0 })
}
