package procfs

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	const tail = " S 1 7 7 0 -1 4194560 9 0 0 0 12 30 0 0 20 0 3 0 2200 1 2 3"
	cat := Stat{Comm: "cat", State: 'S', Parent: 1, Threads: 3, CPU: 42, Start: 2200}
	named := func(comm string) Stat { s := cat; s.Comm = comm; return s }
	tests := map[string]struct {
		line string
		want Stat
		bad  bool
	}{
		"plain": {line: "7 (cat)" + tail, want: cat},
		"whole": {
			line: "7 (cat)" + " R 1 7 7 0 -1 4194560 9 0 0 0 12 30 0 0 20 0 3 0 2200 4096 2 3 11 12 13 0 0 0 0 0 0 0 0 0 17 5 0 0 0 0 0",
			want: Stat{Comm: "cat", State: 'R', Parent: 1, Threads: 3, CPU: 42, Start: 2200, Size: 4096, CodeStart: 11, StackStart: 13, Processor: 5},
		},
		"forged comm": {line: "7 (a) Z 1 (b)" + tail, want: named("a) Z 1 (b")},
		"empty comm":  {line: "7 ()" + tail, want: named("")},
		"kernel thread": {
			line: "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0",
			want: Stat{Comm: "kthreadd", State: 'S', KernelThread: true, Threads: 1, Start: 1},
		},
		"empty":         {bad: true},
		"no comm":       {line: "7 S 1 7", bad: true},
		"reversed":      {line: ")(" + tail, bad: true},
		"short":         {line: "7 (cat) S 1 7", bad: true},
		"wrong parent":  {line: "7 (cat) S x 7 7 0 -1 0 9 0 0 0 1 2 0 0 20 0 3 0 22", bad: true},
		"wrong flags":   {line: "7 (cat) S 1 7 7 0 -1 x 9 0 0 0 1 2 0 0 20 0 3 0 22", bad: true},
		"wrong times":   {line: "7 (cat) S 1 7 7 0 -1 0 9 0 0 0 x 2 0 0 20 0 3 0 22", bad: true},
		"wrong start":   {line: "7 (cat) S 1 7 7 0 -1 0 9 0 0 0 1 2 0 0 20 0 3 0 x", bad: true},
		"wrong threads": {line: "7 (cat) S 1 7 7 0 -1 0 9 0 0 0 1 2 0 0 20 0 x 0 22", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStat([]byte(test.line))
			if (err != nil) != test.bad {
				t.Fatalf("got error %v, want one: %v", err, test.bad)
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error("(-want +got):\n" + d)
			}
		})
	}
}

func TestEnded(t *testing.T) {
	for _, test := range []struct {
		stat          Stat
		exited, ended bool
	}{
		{Stat{State: 'S', Threads: 1}, false, false},
		{Stat{State: 'Z', Threads: 1}, true, true},
		{Stat{State: 'X', Threads: 0}, true, true},
		{Stat{State: 'Z', Threads: 2}, true, false}, // other threads still run
	} {
		if s := test.stat; s.Exited() != test.exited || s.Ended() != test.ended {
			t.Errorf("%+v: got exited %v, ended %v; want %v, %v", s, s.Exited(), s.Ended(), test.exited, test.ended)
		}
	}
}

func TestOwnStat(t *testing.T) {
	s, err := Process(os.Getpid()).Stat()
	if err != nil || s.Parent != os.Getppid() || s.Threads < 1 || s.KernelThread || s.Ended() || s.Start == 0 {
		t.Errorf("got %+v, %v; want a running process with this parent", s, err)
	}
}

// FuzzParseStat parses arbitrary bytes, and a valid line with them as the name.
func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (cat) R 1 7 7 0 -1 4194560 9 0 0 0 12 30 0 0 20 0 3 0 2200 1 2 3"), uint32(12), uint32(30), uint32(2200))
	f.Add([]byte(")("), uint32(0), uint32(0), uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, user, system, start uint32) {
		if s, err := ParseStat(b); err == nil && (s.Parent < 0 || s.Threads < 0) {
			t.Errorf("%q: got %+v, want no negative numbers", b, s)
		}
		want := Stat{Comm: string(b), State: 'R', Parent: 1, Threads: 3, CPU: uint64(user) + uint64(system), Start: uint64(start)}
		got, err := ParseStat(fmt.Appendf(nil, "7 (%s) R 1 7 7 0 -1 4194560 9 0 0 0 %d %d 0 0 20 0 3 0 %d 1", b, user, system, start))
		if err != nil || got != want {
			t.Errorf("got %+v (%v), want %+v", got, err, want)
		}
	})
}
