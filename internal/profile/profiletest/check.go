// Package profiletest checks the consistency of profiles.
package profiletest

import (
	"testing"

	"fulgur/internal/profile"
)

// Check fails the test if p's tables refer to missing rows, a stack's caller does not
// come before it, or p exceeds the limits of package profile.
func Check(t testing.TB, p *profile.Profile) {
	t.Helper()
	if len(p.Mappings) == 0 || len(p.Functions) == 0 || len(p.Frames) == 0 || len(p.Stacks) == 0 {
		t.Fatal("a table lacks the row of what is none")
	}
	if len(p.ValueTypes) > profile.MaxValues {
		t.Fatalf("%d types of values", len(p.ValueTypes))
	}
	for _, m := range p.Mappings {
		short(t, m.Path, m.BuildID)
	}
	for _, f := range p.Functions {
		short(t, f.Name, f.SystemName, f.File)
	}
	for _, task := range p.Tasks {
		short(t, task.Comm)
	}
	for id, f := range p.Frames {
		if int(f.Function) >= len(p.Functions) || int(f.Mapping) >= len(p.Mappings) {
			t.Fatalf("frame %d is %+v, with %d functions and %d mappings", id, f, len(p.Functions), len(p.Mappings))
		}
	}
	depths := make([]int, len(p.Stacks))
	for id := 1; id < len(p.Stacks); id++ {
		s := p.Stacks[id]
		if int(s.Parent) >= id || s.Frame == 0 || int(s.Frame) >= len(p.Frames) {
			t.Fatalf("stack %d is %+v, with %d frames", id, s, len(p.Frames))
		}
		if depths[id] = depths[s.Parent] + 1; depths[id] > profile.MaxDepth {
			t.Fatalf("stack %d has %d frames", id, depths[id])
		}
	}
	frames := 0
	for i, s := range p.Samples {
		if int(s.Stack) >= len(p.Stacks) || int(s.Task) >= len(p.Tasks) || len(s.Values) != len(p.ValueTypes) {
			t.Fatalf("sample %d is %+v, with %d stacks, %d tasks and %d values", i, s, len(p.Stacks), len(p.Tasks), len(p.ValueTypes))
		}
		frames += depths[s.Stack]
	}
	if frames > profile.MaxFrames+len(p.Samples) {
		t.Fatalf("samples have %d frames", frames)
	}
}

func short(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if len(name) > profile.MaxName {
			t.Fatalf("a name of %d bytes: %.40q…", len(name), name)
		}
	}
}
