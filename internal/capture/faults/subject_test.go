package faults

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source/sourcetest"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// touch is the address of a function that accesses memory.
const touch = stackstest.JitAt + 0x10

// touched returns a store with the stack of a thread in touch, and a file.
func touched(t *testing.T) *stacks.Store {
	t.Helper()
	store := stackstest.NewStore(t, stackstest.Layout{}, stackstest.Trace{ID: 1, PID: 7, Comm: "task", User: []uint64{touch}, End: stackstest.Ended})
	store.Files[5] = stacks.File{Major: 8, Minor: 1, Inode: 9, Path: "/data"}
	return store
}

// disks has the file system of that file.
func disks() mounts.List {
	return mounts.List(procfs.ParseMounts([]byte("22 1 8:1 / /mnt rw - ext4 /dev/sda1 rw\n")))
}

// The page is on top of the stack of a fault: its file, at its path in this system, and its
// offset if pages are distinguished.
func TestPlace(t *testing.T) {
	for _, test := range []struct {
		page    Page
		file    uint64
		offsets bool
		want    string
	}{
		{Page{Kind: Unknown}, 0, false, "[unknown page]"},
		{Page{Kind: Anonymous}, 0, true, "[anonymous memory]"},
		{Page{Kind: File}, 5, false, "[/mnt/data]"},
		{Page{Kind: File}, 5, true, "[/mnt/data+0x0]"},
		{Page{Kind: File, Offset: 0x3000}, 5, true, "[/mnt/data+0x3000]"},
		{Page{Kind: File}, 6, false, "[file]"}, // its record was lost
	} {
		store := touched(t)
		names := naming.Given(store, debugfiletest.NewFinder(t), map[uint64][]symbolize.Frame{touch: {{Name: "touch"}}})
		b := profile.NewBuilder(profile.ValueType{Type: "faults", Unit: "count"})
		m := New(Config{Offsets: test.offsets})
		m.mounts = disks()
		stack := m.Place(naming.NewStackBuilder(b, store, names), stacks.Sample{Trace: 0, File: test.file, Detail: test.page.detail()})
		p := b.Profile(profile.Meta{}, profile.Losses{})
		var got []string
		for s := stack; s != 0; s = p.Stacks[s].Parent {
			got = append(got, p.FrameName(p.Stacks[s].Frame))
		}
		if want := []string{test.want, "touch"}; !slices.Equal(got, want) {
			t.Errorf("%+v of file %d: got the stack %q, want %q", test.page, test.file, got, want)
		}
	}
}

// Without the time to handle a fault, its value is left out, and the notes say why. Faults are
// shown either way.
func TestUntimed(t *testing.T) {
	store := touched(t)
	store.Samples = map[stacks.Sample]stacks.Values{
		{Source: 2, File: 5, Detail: Page{Kind: File}.detail()}: {Samples: 10, Minor: 70, Major: 30, Handling: 9000, Faults: 100},
		{Source: 2, Detail: Page{Kind: Anonymous}.detail()}:     {Samples: 1, Minor: 10, Handling: 800, Faults: 10},
		{Source: 1, File: 5}: {Samples: 5}, // of another source
	}
	for name, test := range map[string]struct {
		latency error
		want    []string
		sums    []int64
		note    string
	}{
		"timed":   {nil, []string{"samples", "minor-faults", "major-faults", "handling", "faults"}, []int64{11, 80, 30, 9800, 110}, ""},
		"untimed": {fmt.Errorf("attach: %w", syscall.EPERM), []string{"samples", "minor-faults", "major-faults", "faults"}, []int64{11, 80, 30, 110}, "(operation not permitted)"},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(Config{})
			m.source, m.index, m.mounts = &Source{latency: test.latency}, 2, disks()
			var types []string
			var sums []int64
			for _, v := range m.Values(store) {
				sum := int64(0)
				for sample, counted := range store.Samples {
					if sample.Source == m.index {
						sum += v.Sum(0, sample.Detail, counted)
					}
				}
				types, sums = append(types, v.Type), append(sums, sum)
			}
			if !slices.Equal(types, test.want) || !slices.Equal(sums, test.sums) {
				t.Errorf("got values %v, %v; want %v, %v", types, sums, test.want, test.sums)
			}
			if got := types[m.Shown()]; got != "faults" {
				t.Errorf("got the value %s, want faults", got)
			}
			notes := strings.Join(m.Notes(store), "\n")
			if !strings.Contains(notes, "/mnt/data") || strings.Contains(notes, "no fault latency") != (test.note != "") || !strings.Contains(notes, test.note) {
				t.Errorf("got notes %q, want the file, and %q", notes, test.note)
			}
		})
	}
}

// recorder keeps the event that a source records.
type recorder struct {
	sourcetest.Recorder
	fault  profile.Fault
	thread profile.ThreadID
}

func (r *recorder) AddFault(thread profile.ThreadID, f profile.Fault) error {
	r.thread, r.fault = thread, f
	return os.ErrClosed
}

// A recording has the start of a fault; the kernel side reports its end.
func TestEvent(t *testing.T) {
	e := Event{
		Kind: uint16(File), Time: 5000, Id: 1, Address: 0x7000, File: 5, Offset: 0x3000,
		Latency: 300, Period: 10, Pid: 7, Tid: 8, Major: 1,
	}
	record := unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e))
	var r recorder
	if err := (&Source{}).Event(record, &r); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got error %v, want the recorder's", err)
	}
	want := profile.Fault{
		Time: 3700, Address: 0x7000, File: "/file5", Offset: 0x3000, Major: true, Latency: 300, Count: 10, Stack: 3,
	}
	if r.fault != want || r.thread != 708 {
		t.Errorf("got %+v of thread %d, want %+v of 708", r.fault, r.thread, want)
	}
	if r.Counts != (stacks.Values{Samples: 1, Major: 10, Handling: 3000, Faults: 10}) || r.Key.ID != 1 {
		t.Errorf("got counts %v of stack %d", r.Counts, r.Key.ID)
	}
	if err := (&Source{}).Event(record[:len(record)-1], &r); err == nil {
		t.Error("got no error for a cut record")
	}
}
