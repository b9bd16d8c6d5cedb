package procfs

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// minStatus has the lines that every kernel writes.
const minStatus = "Tgid:\t7\nUid:\t1\t2\t3\t4\nCapEff:\t0\n"

func TestParseStatus(t *testing.T) {
	least := Status{TGID: 7, UIDs: [4]uint32{1, 2, 3, 4}}
	with := func(change func(*Status)) Status { s := least; change(&s); return s }
	tests := map[string]struct {
		lines string // in addition to minStatus
		want  Status
		bad   bool
	}{
		"least":  {want: least},
		"tracer": {lines: "TracerPid:\t9\n", want: with(func(s *Status) { s.TracerPID = 9 })},
		"switches": {
			lines: "voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t45\n",
			want:  with(func(s *Status) { s.Switches = 195 }),
		},
		"PID namespace": {lines: "NSpid:\t100\t20\t7\n", want: with(func(s *Status) { s.NSPID = 7 })},
		"memory": {
			lines: "VmPeak:\t 99 kB\nVmHWM:\t   17432 kB\nVmRSS:\t 9 kB\n",
			want:  with(func(s *Status) { s.PeakResident, s.Resident = 17432<<10, 9<<10 }),
		},
		"signals": {
			lines: "SigPnd:\t0000000000000001\nShdPnd:\t8000000000000000\nSigBlk:\t0000000000010000\nSigIgn:\t0000000000001000\nSigCgt:\tx\n",
			want: with(func(s *Status) {
				s.SigPnd, s.ShdPnd, s.SigBlk, s.SigIgn = 1, 1<<63, 1<<16, 1<<12
			}),
		},
		"root": {
			lines: "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n",
			want:  with(func(s *Status) { s.CapEff, s.CapBnd = 1<<41-1, 1<<41-1 }),
		},
		"container": {
			lines: "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\n",
			want: with(func(s *Status) {
				s.CapEff, s.CapBnd, s.NoNewPrivs, s.Seccomp = 0xa80425fb, 0xa80425fb, true, true
			}),
		},
		"no number":         {lines: "Tgid:\n", bad: true},
		"wrong switches":    {lines: "voluntary_ctxt_switches:\t-1\n", bad: true},
		"wrong tracer":      {lines: "TracerPid:\tx\n", bad: true},
		"wrong namespace":   {lines: "NSpid:\t1\tx\n", bad: true},
		"three users":       {lines: "Uid:\t1\t2\t3\n", bad: true},
		"wrong user":        {lines: "Uid:\t1\t2\t3\t-4\n", bad: true},
		"no memory":         {lines: "VmHWM:\n", bad: true},
		"other unit":        {lines: "VmHWM:\t9 MB\n", bad: true},
		"negative memory":   {lines: "VmHWM:\t-9 kB\n", bad: true},
		"too much memory":   {lines: "VmHWM:\t99999999999999999999 kB\n", bad: true},
		"no capabilities":   {lines: "CapEff:\n", bad: true},
		"wrong bounding":    {lines: "CapBnd:\tx\n", bad: true},
		"too many signals":  {lines: "SigIgn:\t10000000000000000\n", bad: true},
		"not in hexdecimal": {lines: "SigPnd:\tx\n", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStatus([]byte("Name:\tcat\n" + minStatus + test.lines))
			if (err != nil) != test.bad {
				t.Fatalf("got error %v, want one: %v", err, test.bad)
			}
			if d := cmp.Diff(test.want, got); !test.bad && d != "" {
				t.Error("(-want +got):\n" + d)
			}
		})
	}
	for _, incomplete := range []string{"", "Tgid:\t7\n", "Tgid:\t7\nUid:\t1\t2\t3\t4\n", "Uid:\t1\t2\t3\t4\nCapEff:\t0\n"} {
		if got, err := ParseStatus([]byte(incomplete)); err == nil {
			t.Errorf("%q: got %+v, want an error", incomplete, got)
		}
	}
}

func TestOwnStatus(t *testing.T) {
	s, err := Self.Status()
	if err != nil || s.TGID != os.Getpid() || s.UIDs[0] != uint32(os.Getuid()) || s.PeakResident < 1<<20 {
		t.Errorf("got %+v, %v; want this process's IDs and memory", s, err)
	}
}

// FuzzParseStatus finds values after arbitrary lines, unless these are malformed.
func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Name:\tcat\nUmask:\t0022"), uint16(42), uint32(4), uint64(1))
	f.Add([]byte(minStatus), uint16(7), uint32(0), uint64(0x1ffffffffff))
	f.Fuzz(func(t *testing.T, others []byte, pid uint16, uid uint32, set uint64) {
		lines := fmt.Appendf(nil, "Tgid:\t%d\nNSpid:\t9\t%d\nUid:\t1\t2\t3\t%d\nVmHWM:\t%8d kB\nCapEff:\t%016x\nSigIgn:\t%016x\n",
			pid, pid, uid, uid, set, set)
		want := Status{
			TGID: int(pid), NSPID: int(pid), UIDs: [4]uint32{1, 2, 3, uid}, PeakResident: uint64(uid) << 10, CapEff: set, SigIgn: set,
		}
		if got, err := ParseStatus(lines); err != nil || got != want {
			t.Fatalf("got %+v (%v), want %+v", got, err, want)
		}
		_, errOthers := ParseStatus(append([]byte(minStatus), others...))
		got, err := ParseStatus(fmt.Appendf(others, "\n%s", lines))
		if (err == nil) != (errOthers == nil) {
			t.Fatalf("got error %v, want %v", err, errOthers)
		}
		if err == nil && (got.TGID != want.TGID || got.NSPID != want.NSPID || got.UIDs != want.UIDs || got.CapEff != want.CapEff) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}
