package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fulgur/bpf"
	"fulgur/internal/debugfile"
	"fulgur/internal/loop"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/stacks"
	"fulgur/internal/symbolize"
)

// body is a stack as the kernel side sends it; frames are leaf first.
type body struct {
	id               uint64
	pid, tid         uint32
	comm             string
	time             uint64
	kernel, user     []uint64
	kernelEnd, ended bpf.OnCPUStackEnd
}

// record returns the bytes that cross the ring for b.
func (b body) record(t testing.TB) []byte {
	t.Helper()
	r := bpf.OnCPUStackRecord{
		Type:         uint32(bpf.OnCPURecordTypeRECORD_STACK),
		KernelFrames: uint16(len(b.kernel)),
		UserFrames:   uint16(len(b.user)),
		Id:           b.id,
		Time:         b.time,
		Pid:          b.pid,
		Tid:          b.tid,
		KernelEnd:    uint8(b.kernelEnd),
		UserEnd:      uint8(b.ended),
	}
	copy(r.Comm[:], b.comm)
	copy(r.Frames[:], append(b.kernel[:len(b.kernel):len(b.kernel)], b.user...))
	var out bytes.Buffer
	if err := binary.Write(&out, binary.NativeEndian, &r); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// layout has the same code at the same addresses in every process: a file, the
// vdso, a JIT's code, and nothing above.
type layout struct{ file *process.File }

const (
	fileAt = 0x400000
	vdsoAt = 0x500000
	jitAt  = 0x600000
	voidAt = 0x700000
)

func (l layout) Resolve(_ int, addr, _ uint64) process.Location {
	at := func(kind process.Kind, start uint64) process.Location {
		return process.Location{Kind: kind, Offset: addr, MapStart: start, MapLimit: start + 0x1000}
	}
	switch {
	case addr < vdsoAt:
		found := at(process.KindFile, fileAt)
		found.File, found.Offset, found.MapOffset = l.file, addr-fileAt+0x2000, 0x2000
		return found
	case addr < jitAt:
		return at(process.KindVDSO, vdsoAt)
	case addr < voidAt:
		return at(process.KindAnon, jitAt)
	}
	return process.Location{Offset: addr}
}

func (layout) PerfMap(int) (*os.File, error) { return nil, os.ErrNotExist }

// newStore returns a store with the given bodies.
func newStore(t testing.TB, r stacks.Resolver, bodies ...body) *stacks.Store {
	t.Helper()
	s := stacks.NewStore(r)
	for _, b := range bodies {
		if err := s.Add(b.record(t)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// newFinder returns a finder that downloads nothing.
func newFinder(t *testing.T) *debugfile.Finder {
	t.Helper()
	f, err := debugfile.New(debugfile.Config{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// named returns names of s's frames, as symbolizeAll does, but taken from
// found by the frame's address.
func named(t *testing.T, s *stacks.Store, found map[uint64][]symbolize.Frame) *names {
	t.Helper()
	n := &names{
		store:     s,
		finder:    newFinder(t),
		stripped:  make([]*stripped, len(s.Codes)),
		kernelIDs: map[string]string{"": "", "ext4": ""},
		buildIDs:  make([]string, len(s.Codes)),
		bases:     make([]uint64, len(s.Codes)),
		problems:  make([]error, len(s.Codes)),
	}
	for _, f := range s.Frames {
		n.found = append(n.found, found[f.Address])
		n.addresses = append(n.addresses, f.Address)
		if len(found[f.Address]) == 0 {
			n.unresolved++
		}
	}
	return n
}

// clock returns the subject of a profile by time.
func clock(t *testing.T) *onCPU {
	t.Helper()
	m := &onCPU{options: &ProfileOptions{Event: "cpu-clock"}}
	if err := m.complete(); err != nil {
		t.Fatal(err)
	}
	return m
}

// lines returns what p holds, a line for each sample.
func lines(p *profile.Profile) map[string][]int64 {
	all := map[string][]int64{}
	for _, s := range p.Samples {
		task := p.Tasks[s.Task]
		line := []string{task.Comm}
		frames := p.AppendFrames(nil, s.Stack)
		for i := len(frames) - 1; i >= 0; i-- {
			line = append(line, p.FrameName(frames[i]))
		}
		all[strings.Join(line, ";")+", "+s.End.String()] = s.Values
	}
	return all
}

const (
	ended   = bpf.OnCPUStackEndEND_FRAME_POINTER
	cut     = bpf.OnCPUStackEndEND_DEPTH
	faulted = bpf.OnCPUStackEndEND_FAULT
)

func TestBuildProfile(t *testing.T) {
	file := &process.File{Path: "/usr/bin/app"}
	store := newStore(t, layout{file},
		body{id: 1, pid: 7, tid: 8, comm: "app", kernel: []uint64{0xffff10, 0xffff21}, user: []uint64{fileAt, fileAt + 0x11}, kernelEnd: ended, ended: ended},
		body{id: 2, pid: 7, comm: "app", user: []uint64{vdsoAt + 4, fileAt + 0x11}, ended: cut},
		body{id: 3, pid: 9, comm: "jit", user: []uint64{voidAt, voidAt + 8}, ended: faulted},
		body{id: 5, pid: 9, comm: "jit", user: []uint64{jitAt, voidAt + 8, fileAt}, ended: ended},
		body{id: 6, pid: 9, comm: "jit", user: []uint64{jitAt, voidAt + 9, fileAt + 1}, ended: ended},
		body{id: 4, pid: 2, comm: "kworker/0:1-evt", kernel: []uint64{0xffff10}, kernelEnd: cut},
	)
	counts := map[stacks.Key]stacks.Value{
		{ID: 1}:  {Samples: 1, Weights: stacks.Weights{10}},
		{ID: 2}:  {Samples: 2, Weights: stacks.Weights{20}},
		{ID: 3}:  {Samples: 4, Weights: stacks.Weights{40}},
		{ID: 4}:  {Samples: 8, Weights: stacks.Weights{80}},
		{ID: 5}:  {Samples: 32, Weights: stacks.Weights{320}},
		{ID: 6}:  {Samples: 64, Weights: stacks.Weights{640}},
		{ID: 99}: {Samples: 16, Weights: stacks.Weights{160}},
	}
	names := named(t, store, map[uint64][]symbolize.Frame{
		0xffff10:   {{Name: "read"}},
		0xffff21:   {{Name: "ext4_read", Module: "ext4"}},
		0x2000:     {{Name: "inner"}, {Name: "outer"}}, // inner was inlined
		0x2011:     {{Name: "main", SystemName: "_main", File: "m.c", StartLine: 3, Line: 4, Offset: 5}},
		vdsoAt + 4: {{Name: "an address, not an offset"}},
		4:          {{Name: "gettime"}},
		0:          {{Name: brokenStack}},
	})
	store.Count(counts)
	p := buildProfile(clock(t), store, counts, names, profile.Meta{Scope: "test"}, profile.Losses{Samples: 3}, nil)

	want := map[string][]int64{
		"app;main;outer;inner;ext4_read;read, end of frame pointers":  {1, 10},
		"app;main;gettime, depth limit":                               {2, 20},
		"jit;[unknown+0x700008];[unknown+0x700000], unreadable stack": {4, 40},
		"jit;[broken stack];[jit+0x600000], broken stack":             {96, 960},
		"kworker/0:1-evt;read, no user stack":                         {8, 80},
		"[unknown];[stack lost], " + profile.EndLost.String():         {16, 160},
	}
	if diff := cmp.Diff(want, lines(p)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	losses := profile.Losses{
		Samples: 3, Bodies: 16, TruncatedUser: 2, TruncatedKernel: 8, UserFaults: 4, BrokenUser: 96, Unresolved: 100, UnresolvedFrames: 4,
	}
	if diff := cmp.Diff(losses, p.Losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	if p.Meta.Scope != "test" {
		t.Errorf("meta %+v", p.Meta)
	}
	for _, s := range p.Samples {
		if s.CPU != -1 {
			t.Errorf("CPU %d where they are not told apart", s.CPU)
		}
	}
}

// A function keeps what is known of it, and inlined frames follow the one that
// they are inlined into.
func TestPlace(t *testing.T) {
	file := &process.File{Path: "/usr/bin/app"}
	store := newStore(t, layout{file}, body{id: 1, user: []uint64{fileAt}, ended: ended})
	names := named(t, store, map[uint64][]symbolize.Frame{0x2000: {
		{Name: "inner()", SystemName: "_Z5inner", File: "a.cc", StartLine: 10, Line: 12, Offset: 1, Inlined: true},
		{Name: "outer()", SystemName: "_Z5outer", File: "b.cc", StartLine: 20, Line: 22, Offset: 1},
	}})
	leaf := store.Nodes[store.Bodies[0].Leaf].Frame
	names.buildIDs[store.Frames[leaf].Code] = "c0ffee"
	names.addresses[leaf] = 0x1234
	b := profile.NewBuilder()
	placed := names.place(b, leaf)
	p := b.Profile(profile.Meta{}, profile.Losses{})
	if len(placed) != 2 {
		t.Fatalf("%d frames, want 2", len(placed))
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
			t.Errorf("frame %d: %+v of %+v, want %+v", i, f, got, want)
		}
		mapping := profile.Mapping{Path: "/usr/bin/app", BuildID: "c0ffee", Start: fileAt, Limit: fileAt + 0x1000, Offset: 0x2000}
		if got := p.Mappings[f.Mapping]; got != mapping {
			t.Errorf("frame %d is in %+v, want %+v", i, got, mapping)
		}
	}
}

func TestKindsAndMappings(t *testing.T) {
	store := newStore(t, layout{&process.File{Path: "/lib/x.so"}},
		body{id: 1, kernel: []uint64{0xffff10}, user: []uint64{fileAt, vdsoAt + 8, jitAt + 8, voidAt + 8}, ended: ended})
	names := named(t, store, nil)
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
				t.Errorf("code of kind %d is in %s, want %s", kind, got, want.path)
			}
		}
		if got := frameKind(kind); got != want.kind {
			t.Errorf("code of kind %d is %v, want %v", kind, got, want.kind)
		}
	}
	if got := names.mapping(0, nil).Path; got != "[kernel.kallsyms]" {
		t.Errorf("a kernel frame without a name is in %s", got)
	}
}

// The first signal after sampling ends the search for names; what is left out
// is told of in one line.
func TestNamingIsInterruptible(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	again := func(context.Context) (context.Context, func()) { return ended, func() {} }
	once := func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }
	for _, test := range []struct {
		name          string
		ctx           context.Context
		interrupted   bool
		interruptible func(context.Context) (context.Context, func())
		cut           bool
	}{
		{"no signal", t.Context(), false, nil, false},
		{"one after sampling", ended, false, once, true},
		{"one that ended sampling", ended, true, once, false},
		{"one that ended sampling, to which none can follow", ended, true, nil, false},
		{"one that ended sampling and one after", ended, true, again, true},
	} {
		store := ownStack(t)
		var stderr bytes.Buffer
		r := &run{
			options: &Options{Stderr: &stderr, Interruptible: test.interruptible},
			names:   newNames(store, newFinder(t), symbolize.Options{}),
			Loop:    loop.Loop{Interrupted: test.interrupted},
		}
		r.symbolize(test.ctx)
		want := []string(nil)
		if test.cut {
			want = []string{"interrupted: names are incomplete in 1 module; addresses shown as module+offset: 2"}
		}
		if got := r.names.warnings(); !slices.Equal(got, want) {
			t.Errorf("%s: warnings %q, want %q", test.name, got, want)
		}
		for i, f := range store.Frames {
			want := !test.cut || store.Codes[f.Code].Kind == stacks.CodeBroken
			if got := len(r.names.found[i]) > 0; got != want {
				t.Errorf("%s: frame %d is named: %t, want %t", test.name, i, got, want)
			}
		}
	}
}

// That a context ended is left out of what an error says, wherever it is.
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
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// What is read since the longest time is what is waited for.
func TestReading(t *testing.T) {
	store := newStore(t, layout{&process.File{Path: "/bin/app"}},
		body{id: 1, kernel: []uint64{0xffff10}, user: []uint64{fileAt, vdsoAt + 8, jitAt + 8}, ended: ended})
	names := newNames(store, newFinder(t), symbolize.Options{})
	id := map[stacks.CodeKind]stacks.CodeID{}
	for code := range store.Codes {
		id[store.Codes[code].Kind] = stacks.CodeID(code)
	}
	order := []stacks.CodeKind{stacks.CodeFile, stacks.CodeKernel, stacks.CodeJIT, stacks.CodeVDSO}
	for _, kind := range order {
		names.begin(id[kind])
	}
	for i, want := range []string{"/bin/app", "the kernel", "code compiled at run time", "the vdso"} {
		if got := names.reading(); got != want {
			t.Errorf("reading %q, want %q", got, want)
		}
		names.end(id[order[i]])
	}
	if got := names.reading(); got != "" {
		t.Errorf("reading %q when all is read", got)
	}
}

// Code that has no file is no reason to complain; the problems of each other one
// are a line that a terminal can show.
func TestWarnings(t *testing.T) {
	store := newStore(t, layout{&process.File{}}, body{id: 1, user: []uint64{fileAt, vdsoAt + 8, jitAt + 8, voidAt + 8}, ended: ended})
	names := named(t, store, map[uint64][]symbolize.Frame{0x2000: {{Name: "main"}}})
	var want []string
	for id, code := range store.Codes {
		if code.Kind == stacks.CodeBroken {
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
	if got := names.warnings(); !slices.Equal(got, want) {
		t.Errorf("%q, want those of all but what is unknown: %q", got, want)
	}
}

// ownStack returns a store with a stack of this very process: newStore twice,
// as the leaf its first instruction, as a caller its second one's return
// address; and nothing that is mapped.
func ownStack(t testing.TB) *stacks.Store {
	t.Helper()
	table := process.NewTable(process.Options{})
	t.Cleanup(func() { table.Close() })
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	entry := uint64(reflect.ValueOf(newStore).Pointer())
	return newStore(t, table, body{
		id: 1, pid: uint32(os.Getpid()), comm: "test", time: uint64(now.Nano()),
		user:  []uint64{entry, entry + 1, 0x10},
		ended: ended,
	})
}

// Frames of this very process get their names from its own file.
func TestSymbolize(t *testing.T) {
	store := ownStack(t)
	names := newNames(store, newFinder(t), symbolize.Options{})
	names.symbolize(t.Context())
	store.Count(map[stacks.Key]stacks.Value{{ID: 1}: {Samples: 1}})
	p := buildProfile(clock(t), store, nil, names, profile.Meta{}, profile.Losses{}, nil)
	const function = "fulgur/internal/session.newStore"
	want := "test;[broken stack];" + function + ";" + function + ", broken stack"
	if got := lines(p); len(got) != 1 || got[want] == nil {
		t.Errorf("%v, want %s", got, want)
	}
	if want := (profile.Losses{BrokenUser: 1}); p.Losses != want {
		t.Errorf("losses %+v, want %+v", p.Losses, want)
	}
	if warnings := names.warnings(); len(warnings) > 0 {
		t.Errorf("warnings %v", warnings)
	}
}
