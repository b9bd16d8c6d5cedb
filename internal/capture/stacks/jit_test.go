package stacks

import (
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
)

// dumped resolves all addresses to JIT code with a jitdump file.
type dumped struct{ dumps *process.JITDumps }

func (d dumped) Resolve(_ int, addr, _ uint64) process.Location {
	return process.Location{Kind: process.KindAnon, Offset: addr, JITDumps: d.dumps}
}

// Frames of JIT code with times are distinct for each epoch of the process, and have the
// time when they were first seen. Other frames are not.
func TestJITEpochs(t *testing.T) {
	seen := func(s *Store, trace TraceID) (f Frame, time uint64) {
		f = s.Frames[s.Nodes[s.Traces[trace].Leaf].Frame]
		return f, s.Seen[f]
	}
	for _, dumps := range []*process.JITDumps{nil, {}} {
		s := NewStore(dumped{dumps})
		add := func(epoch, time uint64) (Frame, uint64) {
			return seen(s, s.traceOf(&bpf.StackRecord{UserFrames: 1, Pid: 7, Epoch: epoch, Time: time, Frames: bpf.StackRecord{}.Frames}))
		}
		f1, t1 := add(1, 10)
		again, t1again := add(1, 11)
		f2, t2 := add(2, 20)
		if f1 != again || t1 != t1again {
			t.Errorf("same epoch: got frames %+v at %d and %+v at %d", f1, t1, again, t1again)
		}
		if dumps == nil {
			if f1 != f2 || t1 != 0 {
				t.Errorf("without times: got frames %+v at %d and %+v", f1, t1, f2)
			}
			continue
		}
		if f1 == f2 || t1 != 10 || t2 != 20 {
			t.Errorf("other epoch: got frames %+v at %d and %+v at %d", f1, t1, f2, t2)
		}
		next := s.Next()
		trace := next.CopyTrace(s, 1)
		if f, time := seen(next, trace); f.Epoch != f2.Epoch || time != 20 {
			t.Errorf("next store: got frame %+v at %d", f, time)
		}
	}
}
