package naming

import (
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
)

// The advice for a function without a name depends on its code: debug symbols help only for files.
func TestUnresolved(t *testing.T) {
	const python = 1<<bpf.FrameRuntimeShift | uint64(bpf.RuntimePython)<<bpf.FrameKindShift | 0x5000
	for _, test := range []struct {
		name string
		user []uint64
		want profile.Loss
	}{
		{"a file", []uint64{stackstest.FileAt}, profile.LossUnresolved},
		{"generated code", []uint64{stackstest.JitAt}, profile.LossUnresolvedGenerated},
		{"a language runtime", []uint64{python, 1 << 32}, profile.LossUnresolvedGenerated},
	} {
		store := stackstest.NewStore(t, stackstest.Layout{File: &process.File{Path: "/usr/bin/app"}}, stackstest.Trace{ID: 1, User: test.user, End: stackstest.Ended})
		b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
		p := NewStackBuilder(b, store, Given(store, debugfiletest.NewFinder(t), nil))
		b.Add(profile.Sample{Stack: p.Trace(0), Task: b.Task(profile.Task{PID: 1}), CPU: -1, Values: []int64{1}})
		counted := b.Profile(profile.Meta{}, profile.Losses{})
		counted.CountUnnamed(false)
		if counted.Losses[test.want] != 1 {
			t.Errorf("%s: got losses %v in the profile, want one of %v", test.name, counted.Losses, test.want)
		}
	}
}
