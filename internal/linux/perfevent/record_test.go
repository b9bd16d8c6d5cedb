package perfevent

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// encode builds a record of uint32, uint64 and string parts. Like the kernel, it pads
// strings with NULs to a multiple of 8 bytes.
func encode(typ uint32, misc uint16, parts ...any) []byte {
	b := binary.NativeEndian.AppendUint32(nil, typ)
	b = binary.NativeEndian.AppendUint16(b, misc)
	b = append(b, 0, 0)
	for _, p := range parts {
		switch p := p.(type) {
		case uint32:
			b = binary.NativeEndian.AppendUint32(b, p)
		case uint64:
			b = binary.NativeEndian.AppendUint64(b, p)
		case string:
			b = append(b, p...)
			b = append(b, make([]byte, 8-len(p)%8)...)
		}
	}
	binary.NativeEndian.PutUint16(b[6:], uint16(len(b)))
	return b
}

const stamp = uint64(123456789)

var records = []struct {
	name string
	raw  []byte
	want Record
}{
	{
		"mmap2",
		encode(unix.PERF_RECORD_MMAP2, 0, uint32(10), uint32(11), uint64(0x1000), uint64(0x2000), uint64(0x3000),
			uint32(8), uint32(1), uint64(42), uint64(7), uint32(5), uint32(2), "/bin/true", stamp),
		Mmap2{Stamp{stamp}, 10, 11, 0x1000, 0x2000, 0x3000, 8, 1, 42, 7, 5, 2, "/bin/true"},
	},
	{
		"comm", encode(unix.PERF_RECORD_COMM, 0, uint32(10), uint32(11), "worker", stamp),
		Comm{Stamp{stamp}, 10, 11, false, "worker"},
	},
	{
		"exec", encode(unix.PERF_RECORD_COMM, unix.PERF_RECORD_MISC_COMM_EXEC, uint32(10), uint32(10), "eightbyt", stamp),
		Comm{Stamp{stamp}, 10, 10, true, "eightbyt"},
	},
	{
		"fork", encode(unix.PERF_RECORD_FORK, 0, uint32(20), uint32(10), uint32(20), uint32(11), uint64(99), stamp),
		Fork{Stamp{stamp}, 20, 10, 20, 11},
	},
	{
		"exit of a task outside of the pid namespace",
		encode(unix.PERF_RECORD_EXIT, 0, ^uint32(0), uint32(0), ^uint32(0), uint32(0), uint64(99), stamp),
		Exit{Stamp{stamp}, -1, 0, -1, 0},
	},
	{"lost", encode(unix.PERF_RECORD_LOST, 0, uint64(1), uint64(17), stamp), Lost{Stamp{stamp}, 17}},
	{"lost samples", encode(unix.PERF_RECORD_LOST_SAMPLES, 0, uint64(18), stamp), Lost{Stamp{stamp}, 18}},
	{"throttle", encode(unix.PERF_RECORD_THROTTLE, 0, uint64(5), uint64(1), uint64(1), stamp), Throttle{Stamp{5}}},
	{"unthrottle", encode(unix.PERF_RECORD_UNTHROTTLE, 0, uint64(6), uint64(1), uint64(1), stamp), Unthrottle{Stamp{6}}},
	{"cgroup", encode(unix.PERF_RECORD_CGROUP, 0, uint64(77), "/a b", stamp), Cgroup{Stamp{stamp}, 77, "/a b"}},
	{"unread type", encode(unix.PERF_RECORD_KSYMBOL, 0, uint64(1), "/", stamp), Other{Stamp{stamp}, unix.PERF_RECORD_KSYMBOL}},
}

func TestParseRecord(t *testing.T) {
	for _, tc := range records {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseRecord(tc.raw, true)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRecordMalformed(t *testing.T) {
	for _, tc := range records {
		if _, ok := tc.want.(Other); ok {
			continue
		}
		for _, n := range []int{0, 7, headerSize, headerSize + timeSize} {
			b := slices.Clone(tc.raw[:n])
			if n >= headerSize {
				binary.NativeEndian.PutUint16(b[6:], uint16(n))
			}
			if _, err := ParseRecord(b, true); err == nil {
				t.Errorf("%s cut to %d bytes: got no error", tc.name, n)
			}
		}
		if _, err := ParseRecord(tc.raw[:len(tc.raw)-1], true); err == nil {
			t.Errorf("%s shorter than its size: got no error", tc.name)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, tc := range records {
		f.Add(tc.raw, true)
		f.Add(tc.raw, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, sampleID bool) {
		rec, err := ParseRecord(b, sampleID)
		if (rec == nil) != (err != nil) {
			t.Errorf("got record %v with error %v, want one of them", rec, err)
		}
	})
}
