package pmu

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// cycles returns attributes of hardware cycles with branch stacks.
func cycles() unix.PerfEventAttr {
	return unix.PerfEventAttr{
		Type:               unix.PERF_TYPE_HARDWARE,
		Config:             unix.PERF_COUNT_HW_CPU_CYCLES,
		Size:               uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample:             100_000,
		Sample_type:        unix.PERF_SAMPLE_BRANCH_STACK,
		Branch_sample_type: unix.PERF_SAMPLE_BRANCH_USER | unix.PERF_SAMPLE_BRANCH_ANY,
		Bits:               unix.PerfBitDisabled | unix.PerfBitExcludeKernel,
	}
}

// The stacks in perf's own ring are those that were prepared, in their order.
func TestStacks(t *testing.T) {
	testenv.EveryKernel(t)
	for _, nmi := range []bool{false, true} {
		t.Run(fmt.Sprintf("nmi=%v", nmi), func(t *testing.T) {
			Load(t, Options{NMI: nmi})
			const windows, window = 20, 16
			var records []Record
			for i := range uint64(windows * window) {
				records = append(records, Record{From: i << 8, To: i<<8 + 4, Flags: i & 1})
			}
			if err := Add(Queue{PID: os.Getpid(), Window: window, Records: records}); err != nil {
				t.Fatal(err)
			}
			got := sample(t, window, windows)
			if diff := cmp.Diff(records, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			s, err := ReadStatus()
			if err != nil {
				t.Fatal(err)
			}
			if s.Samples < windows || nmi != (s.NMIs > 0) || len(s.Queues) != 1 || s.Queues[0].Left() != 0 {
				t.Errorf("status = %+v, want at least %d samples and one empty queue", s, windows)
			}
		})
	}
}

// sample burns CPU time under an event of its own thread until there are n
// branch stacks in its ring, and returns their records.
func sample(t *testing.T, window, n int) []Record {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := cycles()
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Fatalf("open cycles: %v", err)
	}
	defer unix.Close(fd)
	page := os.Getpagesize()
	ring, err := unix.Mmap(fd, 0, 17*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(ring) }()
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		t.Fatal(err)
	}
	const dataHead = 1024 // in struct perf_event_mmap_page
	size := 8 + 8 + 24*window
	written := func() uint64 { return binary.NativeEndian.Uint64(ring[dataHead:]) }
	for deadline := time.Now().Add(testenv.TimeLimit()); written() < uint64(n*size); { // samples need a running thread
		if time.Now().After(deadline) {
			t.Fatalf("timeout: got %d bytes of records, want %d", written(), n*size)
		}
	}
	var got []Record
	for i := range n {
		r := ring[page+i*size:]
		if kind := binary.NativeEndian.Uint32(r); kind != unix.PERF_RECORD_SAMPLE {
			t.Fatalf("record %d has type %d, want a sample", i, kind)
		}
		if have := binary.NativeEndian.Uint64(r[8:]); have != uint64(window) {
			t.Fatalf("sample %d has %d branch records, want %d", i, have, window)
		}
		records := make([]Record, window)
		if _, err := binary.Decode(r[16:], binary.NativeEndian, records); err != nil {
			t.Fatal(err)
		}
		got = append(got, records...)
	}
	return got
}

// Without branch recording an event with branch stacks is refused, one without
// is not.
func TestNone(t *testing.T) {
	testenv.EveryKernel(t)
	Load(t, Options{None: true})
	attr := cycles()
	if fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0); err != unix.EOPNOTSUPP {
		t.Errorf("with branch stacks: %d, %v, want EOPNOTSUPP", fd, err)
	}
	attr.Sample_type, attr.Branch_sample_type = 0, 0
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}
