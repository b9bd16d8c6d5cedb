package capability

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// all is every capability that Linux 6.18 knows.
const all Set = 1<<41 - 1

func TestParseStatus(t *testing.T) {
	tests := map[string]struct {
		status string
		want   State
		bad    bool
	}{
		"root": {
			status: "Name:\tfulgur\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n",
			want:   State{Effective: all, Bounding: all},
		},
		"container": {
			status: "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\n",
			want:   State{Effective: 0xa80425fb, Bounding: 0xa80425fb, NoNewPrivs: true, Seccomp: true},
		},
		"few lines":     {status: "CapEff:\t0000000000000000\n"},
		"not hex":       {status: "CapEff:\tx\n", bad: true},
		"bounding":      {status: "CapEff:\t0\nCapBnd:\tx\n", bad: true},
		"empty":         {bad: true},
		"capless value": {status: "CapEff:\n", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got State
			err := got.parseStatus([]byte(test.status))
			if (err != nil) != test.bad {
				t.Fatalf("error %v, want one: %v", err, test.bad)
			}
			if test.bad {
				return
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error("(-want +got):\n" + d)
			}
		})
	}
}

// FuzzParseStatus reads foreign lines and one with capabilities behind them.
func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Name:\tfulgur\nCapBnd:\t000001ffffffffff\nSeccomp:\t0\n"), uint64(0x1ffffffffff))
	f.Add([]byte("Name:\tfulgur\nCapEff:\t000001ffffffffff\n"), uint64(0))
	f.Fuzz(func(t *testing.T, others []byte, effective uint64) {
		var s State
		if err := s.parseStatus(others); err == nil && !bytes.Contains(others, []byte("CapEff")) {
			t.Errorf("no capabilities in %q, and no error", others)
		} else if err != nil && bytes.Contains(others, []byte("Cap")) {
			return // a bad line stays bad
		}
		s = State{}
		err := s.parseStatus(fmt.Appendf(others, "\nCapEff:\t%016x\n", effective))
		if err != nil || s.Effective != Set(effective) {
			t.Errorf("capabilities %x (%v), want %x", s.Effective, err, effective)
		}
	})
}

func TestIdentityMap(t *testing.T) {
	tests := map[string]bool{
		"         0          0 4294967295\n":                          true,
		"         0       1000          1\n":                          false,
		"         0       1000          1\n 1     100000     65536\n": false,
		"": false,
	}
	for text, want := range tests {
		if got := identityMap([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestCan(t *testing.T) {
	admin := State{Effective: SetOf(SysAdmin), Last: CheckpointRestore}
	for c, want := range map[Capability]bool{
		BPF: true, Perfmon: true, CheckpointRestore: true, SysAdmin: true, SysPtrace: false, Syslog: false, DACReadSearch: false,
	} {
		if got := admin.Can(c); got != want {
			t.Errorf("with CAP_SYS_ADMIN alone, %s: %v, want %v", c, got, want)
		}
	}
}

func TestIn(t *testing.T) {
	before := State{Last: 37} // Linux 5.7
	for c, want := range map[Capability]Capability{BPF: SysAdmin, CheckpointRestore: SysAdmin, SysPtrace: SysPtrace} {
		if got := c.In(before); got != want {
			t.Errorf("%s is %s, want %s", c, got, want)
		}
	}
}
