package pprof

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "github.com/google/pprof/profile"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/unwind/stackend"
)

// FuzzWrite writes profiles of any shape and compares the samples that the pprof library
// decodes.
func FuzzWrite(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := encodetest.Random(rand.New(rand.NewPCG(seed, 0)))
		got := roundTrip(t, p, Options{})
		var want, have []string
		for i, s := range p.Samples {
			want = append(want, describeSample(p, s))
			have = append(have, describeWritten(got.Sample[i]))
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("samples (-profile +written):\n%s", diff)
		}
		// The library keeps everything when it writes the profile again.
		if text := got.Copy().String(); text != got.String() {
			t.Errorf("got\n%s\nand after the library's round trip\n%s", got, text)
		}
	})
}

// describeSample formats the parts of s that the pprof format can express.
func describeSample(p *profile.Profile, s profile.Sample) string {
	var b strings.Builder
	task := p.Tasks[s.Task]
	var labels []string
	if task.PID != 0 {
		labels = append(labels, fmt.Sprintf("pid %d", task.PID))
	}
	if task.TID != 0 {
		labels = append(labels, fmt.Sprintf("tid %d", task.TID))
	}
	if s.CPU >= 0 {
		labels = append(labels, fmt.Sprintf("cpu %d", s.CPU))
	}
	if task.Comm != "" {
		labels = append(labels, "comm "+task.Comm)
	}
	switch s.End {
	case stackend.Depth, stackend.Fault, stackend.Broken, stackend.Lost:
		labels = append(labels, "stack_end "+s.End.String())
	}
	slices.Sort(labels)
	fmt.Fprintln(&b, s.Values, strings.Join(labels, ", "))
	for _, id := range p.AppendFrames(nil, s.Stack) {
		f := p.Frames[id]
		m := p.Mappings[f.Mapping]
		if fn := p.Functions[f.Function]; f.Function != 0 {
			fmt.Fprintf(&b, "  %s %s %s %s:%d from %d\n", m.Path, fn.Name, fn.SystemName, fn.File, f.Line, fn.StartLine)
		}
		if !f.Inlined {
			fmt.Fprintln(&b, " at", m.Path, m.BuildID)
		}
	}
	return b.String()
}

// describeWritten formats a decoded sample like describeSample.
func describeWritten(s *pb.Sample) string {
	var b strings.Builder
	var labels []string
	for key, values := range s.NumLabel {
		labels = append(labels, fmt.Sprintf("%s %d", key, values[0]))
	}
	for key, values := range s.Label {
		labels = append(labels, key+" "+values[0])
	}
	slices.Sort(labels)
	fmt.Fprintln(&b, s.Value, strings.Join(labels, ", "))
	for _, l := range s.Location {
		m := l.Mapping
		if m == nil {
			m = &pb.Mapping{}
		}
		for _, line := range l.Line {
			fn := line.Function
			fmt.Fprintf(&b, "  %s %s %s %s:%d from %d\n", m.File, fn.Name, fn.SystemName, fn.Filename, line.Line, fn.StartLine)
		}
		fmt.Fprintln(&b, " at", m.File, m.BuildID)
	}
	return b.String()
}
