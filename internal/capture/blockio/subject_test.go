package blockio

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/source/sourcetest"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/capture/target"
	"fulgur/internal/containers"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// Addresses of the functions of a stack, leaf first. The first one is of the probe.
const (
	probeFunction = 0xffffffff81000000 + iota<<8
	submitFunction
	writebackFunction
	readFunction = stackstest.JitAt + 0x10
)

var functions = map[uint64][]symbolize.Frame{
	probeFunction: {{Name: "__bpf_trace_block_getrq"}}, submitFunction: {{Name: "submit_bio"}},
	writebackFunction: {{Name: "wb_workfn"}}, readFunction: {{Name: "read"}},
}

// A request is on top of the stack that submitted it, without the frames of the probe, with the
// file if it is known. The stacks of writeback say so, because another thread wrote the data.
func TestPlace(t *testing.T) {
	request := Request{Device: stacks.Device{Major: 4095, Minor: 12345}, Operation: 1 | 1<<8} // no disk has this number
	for name, test := range map[string]struct {
		kernel, user []uint64
		file         uint64
		userOnly     bool
		want         []string // root first
	}{
		"of a file": {
			[]uint64{probeFunction, submitFunction}, []uint64{readFunction}, 5, false,
			[]string{"read", "submit_bio", "[/mnt/data]", "[4095:12345 write sync]"},
		},
		"without a file": {
			[]uint64{submitFunction}, []uint64{readFunction}, 0, false,
			[]string{"read", "submit_bio", "[4095:12345 write sync]"},
		},
		"user stack alone": {
			[]uint64{probeFunction, submitFunction}, []uint64{readFunction}, 5, true,
			[]string{"read", "[/mnt/data]", "[4095:12345 write sync]"},
		},
		"writeback": {
			[]uint64{probeFunction, submitFunction, writebackFunction}, nil, 5, false,
			[]string{"wb_workfn", "submit_bio", "[writeback]", "[/mnt/data]", "[4095:12345 write sync]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := stackstest.NewStore(t, stackstest.Layout{}, stackstest.Trace{
				ID: 1, PID: 7, Comm: "task", Kernel: test.kernel, KernelEnd: stackstest.Ended, User: test.user, End: stackstest.Ended,
			})
			store.Files[5] = stacks.File{Major: 8, Minor: 1, Inode: 9, Path: "/data"}
			b := profile.NewBuilder(profile.ValueType{Type: "requests", Unit: "count"})
			p := naming.NewStackBuilder(b, store, naming.Given(store, debugfiletest.NewFinder(t), functions))
			m := New(Config{})
			m.common.UserOnly = test.userOnly
			m.cgroups = containers.NewCgroups(nil)
			m.mounts = mounts.List(procfs.ParseMounts([]byte("22 1 8:1 / /mnt rw - ext4 /dev/sda1 rw\n")))
			at := source.EventStack{Leaf: store.Traces[0].Leaf}
			(&Source{}).PlaceEvents(p, 0, &at)
			stack := m.Place(p, stacks.Sample{Trace: 0, File: test.file, Detail: request.detail()})
			made := b.Profile(profile.Meta{}, profile.Losses{})
			var got []string
			for s := stack; s != 0; s = made.Stacks[s].Parent {
				got = append(got, made.FrameName(made.Stacks[s].Frame))
			}
			if slices.Reverse(got); !slices.Equal(got, test.want) {
				t.Errorf("got the stack %q, want %q", got, test.want)
			}
			if want := p.WithoutProbe(store.Traces[0].Leaf); at.Leaf != want || at.Writeback != (name == "writeback") {
				t.Errorf("in a recording: got %+v, want the leaf %d", at, want)
			}
		})
	}
}

// Each of the values can be shown. Other names are refused, and so is a choice of CPUs.
func TestComplete(t *testing.T) {
	everywhere := source.Common{Target: new(target.Target)}
	for weight, want := range map[string]int{"": Latency, "requests": Requests, "bytes": Bytes, "queued": Queued, "in-device": InDevice, "latency": Latency} {
		m := New(Config{Weight: weight})
		if err := m.Complete(everywhere); err != nil || m.Shown() != want || m.PendingEntries != DefaultPendingEntries {
			t.Errorf("%q: got value %d, %d entries, error %v; want value %d", weight, m.Shown(), m.PendingEntries, err, want)
		}
	}
	if err := New(Config{Weight: "faults"}).Complete(everywhere); err == nil {
		t.Error("got no error for an unknown value")
	}
	if err := New(Config{}).Complete(source.Common{Target: &target.Target{CPUs: []int{0}}}); err == nil {
		t.Error("got no error for a choice of CPUs")
	}
}

// recorder keeps the event that a source records.
type recorder struct {
	sourcetest.Recorder
	request profile.BlockIO
	thread  profile.ThreadID
}

func (r *recorder) AddBlockIO(thread profile.ThreadID, request profile.BlockIO) error {
	r.thread, r.request = thread, request
	return os.ErrClosed
}

func TestEvent(t *testing.T) {
	e := Event{
		Born: 2000, Issued: 2030, Completed: 2730, Id: 1, File: 5, Sector: 64, Bytes: 4096,
		Device: 4095<<20 | 12345, Operation: write, Pid: 7, Tid: 8,
	}
	record := unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e))
	var r recorder
	if err := (&Source{}).Event(record, &r); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got error %v, want the recorder's", err)
	}
	want := profile.BlockIO{
		Queued: 1000, Issued: 1030, Completed: 1730, Device: "4095:12345", Sector: 64, Bytes: 4096,
		Op: profile.BlockWrite, Flags: profile.FlagSync, Stack: 3, File: "/file5",
	}
	if r.request != want || r.thread != 708 {
		t.Errorf("got %+v of thread %d, want %+v of 708", r.request, r.thread, want)
	}
	if err := (&Source{}).Event(record[:len(record)-1], &r); err == nil {
		t.Error("got no error for a cut record")
	}
}
