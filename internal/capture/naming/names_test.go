package naming

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
)

// place keeps a function's properties, and puts inlined frames after the function that
// contains them.
func TestPlace(t *testing.T) {
	file := &process.File{Path: "/usr/bin/app"}
	store := stackstest.NewStore(t, stackstest.Layout{File: file}, stackstest.Trace{ID: 1, User: []uint64{stackstest.FileAt}, End: stackstest.Ended})
	names := Given(store, debugfiletest.NewFinder(t), map[uint64][]symbolize.Frame{0x2000: {
		{Name: "inner()", SystemName: "_Z5inner", File: "a.cc", StartLine: 10, Line: 12, Offset: 1, Inlined: true},
		{Name: "outer()", SystemName: "_Z5outer", File: "b.cc", StartLine: 20, Line: 22, Offset: 1},
	}})
	leaf := store.Nodes[store.Traces[0].Leaf].Frame
	names.files[store.Frames[leaf].Code] = &fileID{IDs: elffile.IDs{GNU: "c0ffee"}}
	names.shown[leaf].address = 0x1234
	b := profile.NewBuilder()
	placed := names.place(b, leaf)
	p := b.Profile(profile.Meta{}, profile.Losses{})
	if len(placed) != 2 {
		t.Fatalf("got %d frames, want 2", len(placed))
	}
	for i, want := range []struct {
		function profile.Function
		line     int
		inlined  bool
	}{
		{profile.Function{Name: "outer()", SystemName: "_Z5outer", File: "b.cc", StartLine: 20}, 22, false},
		{profile.Function{Name: "inner()", SystemName: "_Z5inner", File: "a.cc", StartLine: 10}, 12, true},
	} {
		f := p.Frames[placed[i]]
		if got := p.Functions[f.Function]; got != want.function || f.Line != want.line || f.Inlined != want.inlined || f.Address != 0x1234 || f.Offset != 1 {
			t.Errorf("frame %d: got %+v of %+v, want %+v", i, f, got, want)
		}
		mapping := profile.Mapping{Path: "/usr/bin/app", BuildID: "c0ffee", Start: stackstest.FileAt, Limit: stackstest.FileAt + 0x1000, Offset: 0x2000}
		if got := p.Mappings[f.Mapping]; got != mapping {
			t.Errorf("frame %d: got mapping %+v, want %+v", i, got, mapping)
		}
	}
}

func TestKindsAndMappings(t *testing.T) {
	store := stackstest.NewStore(t, stackstest.Layout{File: &process.File{Path: "/lib/x.so"}},
		stackstest.Trace{ID: 1, Kernel: []uint64{0xffff10}, User: []uint64{stackstest.FileAt, stackstest.VdsoAt + 8, stackstest.JitAt + 8, stackstest.VoidAt + 8}, End: stackstest.Ended})
	names := Given(store, debugfiletest.NewFinder(t), nil)
	for kind, want := range map[stacks.CodeKind]struct {
		found []symbolize.Frame
		path  string
		kind  profile.Kind
	}{
		stacks.CodeKernel:  {[]symbolize.Frame{{Name: "f", Module: "ext4"}}, "[ext4]", profile.KindKernel},
		stacks.CodeFile:    {nil, "/lib/x.so", profile.KindUser},
		stacks.CodeVDSO:    {nil, "[vdso]", profile.KindUser},
		stacks.CodeJIT:     {nil, "[jit]", profile.KindJIT},
		stacks.CodeUnknown: {nil, "[unknown]", profile.KindUser},
		stacks.CodeBroken:  {nil, "[unknown]", profile.KindMarker},
	} {
		for id, code := range store.Codes {
			if code.Kind != kind {
				continue
			}
			if got := names.mapping(stacks.CodeID(id), want.found).Path; got != want.path {
				t.Errorf("code of kind %d: got path %s, want %s", kind, got, want.path)
			}
		}
		if got := frameKind(kind); got != want.kind {
			t.Errorf("code of kind %d: got frame kind %v, want %v", kind, got, want.kind)
		}
	}
	if got := names.mapping(0, nil).Path; got != "[kernel.kallsyms]" {
		t.Errorf("kernel frame without a name: got path %s, want [kernel.kallsyms]", got)
	}
}

// withoutCanceled drops context.Canceled from an error, wherever it is wrapped.
func TestWithoutCanceled(t *testing.T) {
	other := errors.New("other")
	canceled := fmt.Errorf("read: %w", context.Canceled)
	for _, test := range []struct{ err, want error }{
		{nil, nil},
		{other, other},
		{canceled, nil},
		{errors.Join(canceled, errors.Join(canceled, other)), other},
		{errors.Join(canceled, canceled), nil},
	} {
		got := withoutCanceled(test.err)
		if (got == nil) != (test.want == nil) || got != nil && got.Error() != test.want.Error() {
			t.Errorf("%v: got %v, want %v", test.err, got, test.want)
		}
	}
}

// Reading returns the file that has been in progress longest.
func TestReading(t *testing.T) {
	store := stackstest.NewStore(t, stackstest.Layout{File: &process.File{Path: "/bin/app"}},
		stackstest.Trace{ID: 1, Kernel: []uint64{0xffff10}, User: []uint64{stackstest.FileAt, stackstest.VdsoAt + 8, stackstest.JitAt + 8}, End: stackstest.Ended})
	names := New(store, debugfiletest.NewFinder(t), symbolize.Options{})
	id := map[stacks.CodeKind]stacks.CodeID{}
	for code := range store.Codes {
		id[store.Codes[code].Kind] = stacks.CodeID(code)
	}
	order := []stacks.CodeKind{stacks.CodeFile, stacks.CodeKernel, stacks.CodeJIT, stacks.CodeVDSO}
	for _, kind := range order {
		names.begin(id[kind])
	}
	for i, want := range []string{"/bin/app", "the kernel", "code compiled at run time", "the vdso"} {
		if got := names.Reading(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		names.end(id[order[i]])
	}
	if got := names.Reading(); got != "" {
		t.Errorf("got %q after all files were read, want nothing", got)
	}
}

// Code without a file causes no warning. The problems of each other code are one warning,
// safe to print on a terminal.
func TestWarnings(t *testing.T) {
	store := stackstest.NewStore(t, stackstest.Layout{File: &process.File{}}, stackstest.Trace{ID: 1, User: []uint64{stackstest.FileAt, stackstest.VdsoAt + 8, stackstest.JitAt + 8, stackstest.VoidAt + 8}, End: stackstest.Ended})
	names := Given(store, debugfiletest.NewFinder(t), map[uint64][]symbolize.Frame{0x2000: {{Name: "main"}}})
	var want []string
	for id, code := range store.Codes {
		if code.Kind == stacks.CodeBroken || code.Kind == stacks.CodeUnseen {
			continue // no code, so it never has a problem
		}
		names.problems[id] = errors.Join(fmt.Errorf("/tmp/\x1b[2J: problem %d", id), errors.New("another"))
		if code.Kind != stacks.CodeUnknown {
			heading := "no names"
			if code.Kind == stacks.CodeFile {
				heading = "incomplete names"
			}
			want = append(want, fmt.Sprintf(`%s: /tmp/\x1b[2J: problem %d; another`, heading, id))
		}
	}
	if got := names.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want one for each code with a file: %q", got, want)
	}
}

// One warning covers all files that may not be read.
func TestWarningsDenied(t *testing.T) {
	store := stackstest.NewStore(t, stackstest.Layout{File: &process.File{}}, stackstest.Trace{ID: 1, User: []uint64{stackstest.FileAt, stackstest.VdsoAt + 8, stackstest.JitAt + 8}, End: stackstest.Ended})
	names := Given(store, debugfiletest.NewFinder(t), nil)
	denied := fmt.Errorf("open it: %w", fs.ErrPermission)
	for _, test := range []struct {
		problems []error
		want     []string
	}{
		{[]error{denied}, []string{"no names: open it: permission denied"}},
		{[]error{denied, errors.New("another"), denied}, []string{"no names: another", "no names: open it: permission denied; the same for other files"}},
	} {
		names.problems = make([]error, len(store.Codes))
		i := 0
		for id, code := range store.Codes {
			if code.Kind != stacks.CodeBroken && code.Kind != stacks.CodeUnknown && i < len(test.problems) {
				names.problems[id] = test.problems[i]
				i++
			}
		}
		if got := names.Warnings(); i < len(test.problems) || !slices.Equal(got, test.want) {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
