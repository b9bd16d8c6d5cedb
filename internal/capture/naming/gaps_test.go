package naming

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/unwind/stackend"
)

// gapsStore returns a store with traces, 1 sample each, in a process with generated code of a
// language and a file with the interpreter of another.
func gapsStore(t *testing.T, file *process.File, ofFile, generated string, traces ...stackstest.Trace) *stacks.Store {
	t.Helper()
	store := stacks.NewStore(stackstest.Layout{File: file})
	store.Language = func(_ int, f *process.File) string {
		if f != nil {
			return ofFile
		}
		return generated
	}
	counts := map[stacks.Key]stacks.Values{}
	for i, trace := range traces {
		trace.ID = uint64(i + 1)
		if err := store.Add(trace.Record(t)); err != nil {
			t.Fatal(err)
		}
		counts[stacks.Key{ID: trace.ID}] = stacks.Values{1}
	}
	store.Count(counts)
	return store
}

// Samples in interpreters whose frames fulgur does not read, and files in which stacks end, have lines
// in the summary, unless the process describes its generated code.
func TestGaps(t *testing.T) {
	noun := describe.NounOf([]profile.ValueType{{Type: "samples", Unit: "count"}}, 0)
	remedy := func(language string) string {
		if language == "python" {
			return "read the stacks"
		}
		return ""
	}
	const file, jit = uint64(stackstest.FileAt), uint64(stackstest.JitAt)
	perl := &process.File{Path: "/usr/bin/\x1b[2Jperl"}
	ended := func(pid uint32, end stackend.End, user ...uint64) stackstest.Trace {
		return stackstest.Trace{PID: pid, User: user, End: end}
	}
	found := map[uint64][]symbolize.Frame{jit + 8: {{Name: "described"}}}
	for _, test := range []struct {
		name              string
		ofFile, generated string
		traces            []stackstest.Trace
		want              []string
	}{
		{"interpreter", "Perl", "", []stackstest.Trace{ended(1, stackend.Complete, file, file+0x20), ended(2, stackend.Complete, file), ended(1, stackend.Complete, jit)},
			[]string{"Perl: its functions are not shown, 2 samples"}},
		{"generated code", "", "LuaJIT", []stackstest.Trace{ended(1, stackend.Complete, file), ended(1, stackend.Complete, jit, file)},
			[]string{"LuaJIT: its functions are not shown, 1 sample; code that it generated may hide callers, 1 sample"}},
		{"both", "Mono", "Mono", []stackstest.Trace{ended(1, stackend.Complete, jit, file), ended(2, stackend.Complete, file)},
			[]string{"Mono: its functions are not shown, 2 samples; code that it generated may hide callers, 1 sample"}},
		{"described code", "Mono", "Mono", []stackstest.Trace{ended(1, stackend.Complete, jit+8, file), ended(1, stackend.Complete, file+0x10), ended(2, stackend.Complete, file+0x10)},
			[]string{"Mono: its functions are not shown, 1 sample"}},
		{"language that is read", "", "java", []stackstest.Trace{ended(1, stackend.Complete, jit, file)}, nil},
		{"stacks end in a file", "", "", []stackstest.Trace{
			ended(1, stackend.NoTable, jit, file), ended(1, stackend.Broken, file), ended(1, stackend.Register, file), ended(1, stackstest.Ended, file, stackstest.VoidAt+8),
			ended(1, stackend.Complete, file), ended(1, stackend.NotReady, file, stackstest.VoidAt+8), ended(1, stackend.NoTable, file, jit+4), ended(1, stackend.NoTable),
		}, []string{`\x1b[2Jperl: stacks end in it without their callers, 4 samples`}},
	} {
		store := gapsStore(t, perl, test.ofFile, test.generated, test.traces...)
		gaps := NewGaps()
		gaps.Add(Given(store, debugfiletest.NewFinder(t), found), maps.All(store.Samples))
		if got := gaps.Lines(noun, remedy); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	gaps := NewGaps()
	store := gapsStore(t, perl, "python", "java", ended(1, stackend.Complete, jit, file))
	store.NativeOnly = true
	gaps.Add(Given(store, debugfiletest.NewFinder(t), found), maps.All(store.Samples))
	if got, want := gaps.Lines(noun, remedy), []string{"java: its functions are not shown, 1 sample; code that it generated may hide callers, 1 sample", "python: its functions are not shown, 1 sample: read the stacks"}; !slices.Equal(got, want) {
		t.Errorf("native only: got %q, want %q", got, want)
	}
	gaps = NewGaps()
	for i := range uint64(7) {
		gaps.files[fmt.Sprint("lib", i)] = i
	}
	got := gaps.Lines(noun, remedy)
	if len(got) != maxRemedies+1 || got[0] != "lib6: stacks end in it without their callers, 6 samples" || got[maxRemedies] != "2 more files in which stacks end without their callers" {
		t.Errorf("7 files: got %q, want those with the most samples", got)
	}
}

// The remedy for a broken stack depends on the code at which it broke.
func TestBroken(t *testing.T) {
	const file, jit, beyond = uint64(stackstest.FileAt), uint64(stackstest.JitAt + 8), uint64(stackstest.VoidAt + 8)
	for _, test := range []struct {
		generated, source string
		user              []uint64
		want              profile.Loss
	}{
		{"java", "", []uint64{file, jit, beyond}, profile.LossBrokenJava},
		{"LuaJIT", "", []uint64{file, jit, beyond}, profile.LossBrokenGenerated},
		{"", "", []uint64{jit, beyond}, profile.LossBrokenGenerated},
		{"java", "", []uint64{jit, file, beyond}, profile.LossBrokenUser},
		{"", "src/main.cc", []uint64{jit, file, beyond}, profile.LossBrokenC},
		{"", "kernel/gemm.S", []uint64{file, beyond}, profile.LossBrokenUser},
		{"", "main.rs", []uint64{file, beyond}, profile.LossBrokenUser},
		{"", "", []uint64{beyond}, profile.LossBrokenUser},
	} {
		store := gapsStore(t, &process.File{Path: "/usr/bin/app"}, "", test.generated, stackstest.Trace{PID: 1, User: test.user, End: stackstest.Ended})
		found := map[uint64][]symbolize.Frame{}
		for _, f := range store.Frames {
			found[f.Address] = []symbolize.Frame{{Name: "f", File: test.source}}
		}
		p := NewStackBuilder(profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}), store, Given(store, debugfiletest.NewFinder(t), found))
		if got := p.Broken(store.Traces[0].Leaf); got != test.want {
			t.Errorf("stack %#x with source %q, generated by %q: got loss %v, want %v", test.user, test.source, test.generated, got, test.want)
		}
	}
}
