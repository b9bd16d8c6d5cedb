package perfevent

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// timed is the layout of an event whose records have only a time.
var timed = Attr{SampleIDAll: true}.layout()

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
		"exit of a task outside of the PID namespace",
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
			got, err := timed.ParseRecord(tc.raw)
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
		for _, n := range []int{0, 7, headerSize, headerSize + 8} {
			b := slices.Clone(tc.raw[:n])
			if n >= headerSize {
				binary.NativeEndian.PutUint16(b[6:], uint16(n))
			}
			if _, err := timed.ParseRecord(b); err == nil {
				t.Errorf("%s cut to %d bytes: got no error", tc.name, n)
			}
		}
		if _, err := timed.ParseRecord(tc.raw[:len(tc.raw)-1]); err == nil {
			t.Errorf("%s shorter than its size: got no error", tc.name)
		}
	}
}

// sampled is the layout of the events that sample without BPF.
var sampled = Attr{
	SampleType: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD | unix.PERF_SAMPLE_CALLCHAIN,
	UserRegs:   3, UserStack: 32, SampleIDAll: true,
}.layout()

func TestParseSampled(t *testing.T) {
	chain := func(list ...uint64) (b []byte) {
		for _, v := range list {
			b = binary.NativeEndian.AppendUint64(b, v)
		}
		return b
	}
	sample := func(parts ...any) []byte {
		head := []any{uint64(0x401000), uint32(10), uint32(11), stamp, uint32(3), uint32(0), uint64(1e6)}
		return encode(unix.PERF_RECORD_SAMPLE, unix.PERF_RECORD_MISC_USER, append(head, parts...)...)
	}
	want := Sample{Stamp: Stamp{stamp}, PID: 10, TID: 11, HasTask: true, HasIP: true, Period: 1e6, IP: 0x401000, CPU: 3}
	whole, noUser, part := want, want, want
	whole.Chain = chain(^uint64(511), 0x401000)
	whole.User = UserState{ABI: ABI64, Mask: 3, Regs: chain(5, 6), Stack: chain(1, 2, 3, 4), Full: true}
	noUser.Chain, noUser.User = chain(), UserState{Mask: 3}
	part.Chain = chain()
	part.User = UserState{ABI: ABI64, Mask: 3, Regs: chain(5, 6), Stack: chain(1)}
	for name, tc := range map[string]struct {
		raw  []byte
		want Record
	}{
		"whole": {sample(uint64(2), ^uint64(511), uint64(0x401000), uint64(ABI64), uint64(5), uint64(6),
			uint64(32), uint64(1), uint64(2), uint64(3), uint64(4), uint64(32)), whole},
		"kernel thread":  {sample(uint64(0), uint64(ABINone), uint64(0)), noUser},
		"end of memory":  {sample(uint64(0), uint64(ABI64), uint64(5), uint64(6), uint64(16), uint64(1), uint64(2), uint64(8)), part},
		"more than copy": {sample(uint64(0), uint64(ABI64), uint64(5), uint64(6), uint64(8), uint64(1), ^uint64(0)), func() Sample { p := part; p.User.Full = true; return p }()},
		"off the CPU": {encode(unix.PERF_RECORD_SWITCH, unix.PERF_RECORD_MISC_SWITCH_OUT, uint32(10), uint32(11), stamp, uint64(3)),
			Switch{Stamp{stamp}, 10, 11, true, false}},
		"preempted": {encode(unix.PERF_RECORD_SWITCH, unix.PERF_RECORD_MISC_SWITCH_OUT|unix.PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, uint32(10), uint32(11), stamp, uint64(3)),
			Switch{Stamp{stamp}, 10, 11, true, true}},
		"runs again": {encode(unix.PERF_RECORD_SWITCH, 0, uint32(10), uint32(11), stamp, uint64(3)), Switch{Stamp{stamp}, 10, 11, false, false}},
		"name": {encode(unix.PERF_RECORD_COMM, 0, uint32(10), uint32(11), "worker", uint32(10), uint32(11), stamp, uint64(3)),
			Comm{Stamp{stamp}, 10, 11, false, "worker"}},
	} {
		got, err := sampled.ParseRecord(tc.raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if _, ok := tc.want.(Sample); !ok {
			continue
		}
		for n := headerSize; n < len(tc.raw); n += 8 { // each shorter one
			b := slices.Clone(tc.raw[:n])
			binary.NativeEndian.PutUint16(b[6:], uint16(n))
			if got, err := sampled.ParseRecord(b); err == nil {
				t.Errorf("%s cut to %d bytes: got %+v, want an error", name, n, got)
			}
		}
	}
	if rec, err := sampled.ParseRecord(sample(uint64(MaxChain + 1))); err == nil {
		t.Errorf("got %+v of an endless call chain, want an error", rec)
	}
}

// FuzzParseRecord parses records of all layouts. What a sample refers to is in its record, each part once.
func FuzzParseRecord(f *testing.F) {
	for _, tc := range records {
		f.Add(tc.raw, timed.SampleType, uint64(0), uint64(0), uint64(0), true)
		f.Add(tc.raw, uint64(0), uint64(0), uint64(0), uint64(0), false)
	}
	f.Add(encode(unix.PERF_RECORD_SAMPLE, 2, uint64(1), uint32(10), uint32(11), stamp, uint64(3), uint64(7), uint64(1), uint64(9),
		uint64(ABI64), uint64(5), uint64(6), uint64(8), uint64(1), uint64(8)), sampled.SampleType, uint64(0), uint64(0), uint64(3), true)
	f.Add(encode(unix.PERF_RECORD_SAMPLE, 2, uint64(2), uint64(1), uint64(2), uint64(3), uint64(4)),
		uint64(unix.PERF_SAMPLE_READ), uint64(unix.PERF_FORMAT_GROUP|unix.PERF_FORMAT_ID), uint64(0), uint64(0), false)
	f.Add(encode(unix.PERF_RECORD_SAMPLE, 2, uint64(1), uint64(0), uint64(1), uint64(2), uint64(3), uint64(4)),
		uint64(unix.PERF_SAMPLE_BRANCH_STACK), uint64(0), uint64(unix.PERF_SAMPLE_BRANCH_HW_INDEX|unix.PERF_SAMPLE_BRANCH_COUNTERS), uint64(0), false)
	f.Fuzz(func(t *testing.T, b []byte, sampleType, readFormat, branchType, userRegs uint64, sampleID bool) {
		l := Layout{SampleType: sampleType, ReadFormat: readFormat, BranchType: branchType, UserRegs: userRegs, SampleIDAll: sampleID}
		rec, err := l.ParseRecord(b)
		if (rec == nil) != (err != nil) {
			t.Fatalf("got record %v with error %v, want one of them", rec, err)
		}
		s, ok := rec.(Sample)
		if !ok {
			return
		}
		parts := len(s.Reads) + len(s.Chain) + len(s.Raw) + len(s.Branches) + len(s.User.Regs) + len(s.User.Stack)
		if parts > len(b)-headerSize {
			t.Errorf("got parts of %d bytes in a record of %d", parts, len(b))
		}
		if len(s.Chain)%8 != 0 || len(s.Branches)%branchSize != 0 || s.ReadSize > 0 && len(s.Reads)%s.ReadSize != 0 || s.ReadSize == 0 && len(s.Reads) > 0 {
			t.Errorf("got %+v with parts of elements", s)
		}
		if len(s.User.Regs) > 0 && len(s.User.Regs) != 8*bits.OnesCount64(s.User.Mask) {
			t.Errorf("got %d bytes of registers for the mask %#x", len(s.User.Regs), s.User.Mask)
		}
	})
}
