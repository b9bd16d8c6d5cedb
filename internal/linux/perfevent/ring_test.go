package perfevent

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// ring returns a ring of size bytes that holds raw from position tail.
func ring(size, tail int, raw ...[]byte) *Ring {
	r := &Ring{page: new(unix.PerfEventMmapPage), data: make([]byte, size), layout: timed}
	head := tail
	for _, b := range raw {
		for _, c := range b {
			r.data[head%size] = c
			head++
		}
	}
	r.page.Data_tail, r.page.Data_head = uint64(tail), uint64(head)
	return r
}

func TestRingRead(t *testing.T) {
	raw := [][]byte{
		encode(unix.PERF_RECORD_COMM, 0, uint32(1), uint32(1), "one", stamp),
		encode(unix.PERF_RECORD_LOST, 0, uint64(1), uint64(3), stamp),
		encode(unix.PERF_RECORD_LOST, 0, uint64(1), uint64(4), stamp),
		encode(unix.PERF_RECORD_COMM, 0, uint32(2), uint32(2), "two", stamp),
	}
	want := []Record{
		Comm{Stamp{stamp}, 1, 1, false, "one"},
		Lost{Stamp{stamp}, 3},
		Lost{Stamp{stamp}, 4},
		Comm{Stamp{stamp}, 2, 2, false, "two"},
	}
	// The first record starts at each possible place, so each record wraps around once.
	for tail := 0; tail < 512; tail += 8 {
		r := ring(256, tail, raw...)
		var got []Record
		lost, err := r.Read(func(rec Record) { got = append(got, rec) })
		if err != nil || lost != 7 {
			t.Fatalf("tail %d: got lost %d, error %v, want 7", tail, lost, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("tail %d: %s", tail, diff)
		}
		if r.page.Data_tail != r.page.Data_head {
			t.Fatalf("tail %d: the ring was not freed", tail)
		}
	}
}

func TestRingReadMalformed(t *testing.T) {
	good := encode(unix.PERF_RECORD_COMM, 0, uint32(1), uint32(1), "one", stamp)
	short := encode(unix.PERF_RECORD_MMAP2, 0, stamp)
	nonsense := encode(unix.PERF_RECORD_COMM, 0, stamp)
	binary.NativeEndian.PutUint16(nonsense[6:], 1)
	for _, tc := range []struct {
		name string
		r    *Ring
		want int
	}{
		{"a bad body is skipped", ring(256, 0, short, good), 1},
		{"a bad length ends the reading", ring(256, 0, good, nonsense, good), 1},
	} {
		n := 0
		_, err := tc.r.Read(func(Record) { n++ })
		if err == nil || n != tc.want {
			t.Errorf("%s: got %d records, error %v; want %d and an error", tc.name, n, err, tc.want)
		}
		if tc.r.page.Data_tail != tc.r.page.Data_head {
			t.Errorf("%s: the ring was not freed", tc.name)
		}
	}
	// An error of many records is one line, and does not hide that others were dropped.
	const (
		first   = "perf record of type 10: body of 0 bytes, want 64 at least"
		dropped = "perf ring: dropped 48 bytes, starting with a record of invalid length 1"
	)
	for _, tc := range []struct {
		want string
		raw  [][]byte
	}{
		{first, [][]byte{short, good}},
		{first + " (and 1 more malformed record)", [][]byte{short, good, short}},
		{first + " (and 2 more malformed records)", [][]byte{short, short, good, short}},
		{dropped, [][]byte{good, nonsense, good}},
		{dropped + "; " + first, [][]byte{short, nonsense, good}},
		{dropped + "; " + first + " (and 1 more malformed record)", [][]byte{short, short, nonsense, good}},
	} {
		if _, err := ring(256, 0, tc.raw...).Read(func(Record) {}); err == nil || err.Error() != tc.want {
			t.Errorf("got error %v, want %s", err, tc.want)
		}
	}
	r := ring(256, 0)
	r.page.Data_head = 1 << 20
	if _, err := r.Read(func(Record) {}); err == nil {
		t.Error("head beyond the ring: got no error")
	}
}
