package session

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/capture/target"
	"fulgur/internal/containers"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/unwind/stackend"
)

// clock returns the subject of a profile of CPU time.
func clock(t *testing.T) source.Subject {
	t.Helper()
	m := oncpu.New(oncpu.Config{Event: "cpu-clock"})
	if err := m.Complete(source.Common{Target: new(target.Target)}); err != nil {
		t.Fatal(err)
	}
	return m
}

// lines returns the samples of p, keyed by their stack as a line.
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

func TestBuildProfile(t *testing.T) {
	file := &process.File{Path: "/usr/bin/app"}
	store := stackstest.NewStore(t, stackstest.Layout{File: file},
		stackstest.Trace{ID: 1, PID: 7, TID: 8, Comm: "app", Kernel: []uint64{0xffff10, 0xffff21}, User: []uint64{stackstest.FileAt, stackstest.FileAt + 0x11}, KernelEnd: stackstest.Ended, End: stackstest.Ended},
		stackstest.Trace{ID: 2, PID: 7, Comm: "app", User: []uint64{stackstest.VdsoAt + 4, stackstest.FileAt + 0x11}, End: stackstest.Cut},
		stackstest.Trace{ID: 3, PID: 9, Comm: "jit", User: []uint64{stackstest.VoidAt, stackstest.VoidAt + 8}, End: stackstest.Faulted},
		stackstest.Trace{ID: 5, PID: 9, Comm: "jit", User: []uint64{stackstest.JitAt, stackstest.VoidAt + 8, stackstest.FileAt}, End: stackstest.Ended},
		stackstest.Trace{ID: 6, PID: 9, Comm: "jit", User: []uint64{stackstest.JitAt, stackstest.VoidAt + 9, stackstest.FileAt + 1}, End: stackstest.Ended},
		stackstest.Trace{ID: 7, PID: 7, Comm: "app", Kernel: []uint64{0xffff30, 0xffff40}, KernelEnd: stackstest.Ended, End: stackstest.Faulted},
		stackstest.Trace{ID: 8, PID: 7, Comm: "app", Kernel: []uint64{0xffff50, 0xffff40}, KernelEnd: stackstest.Ended, End: stackstest.Faulted},
		stackstest.Trace{ID: 9, PID: 7, Comm: "app", Kernel: []uint64{0xffff40}, KernelEnd: stackstest.Ended, End: stackstest.Faulted},
		stackstest.Trace{ID: 10, PID: 7, Comm: "app", Kernel: []uint64{0xffff30}, User: []uint64{stackstest.FileAt + 0x11}, KernelEnd: stackstest.Ended, End: stackstest.Faulted},
		stackstest.Trace{ID: 12, PID: 7, Comm: "app", Kernel: []uint64{0xffff50}, User: []uint64{stackstest.VoidAt}, KernelEnd: stackstest.Ended, End: stackend.NoMapping},
		stackstest.Trace{ID: 11, PID: 7, Comm: "app", User: []uint64{stackstest.FileAt + 0x11, stackstest.VoidAt + 8, stackstest.FileAt}, End: stackstest.Ended},
		stackstest.Trace{ID: 4, PID: 2, Comm: "kworker/0:1-evt", Kernel: []uint64{0xffff10}, KernelEnd: stackstest.Cut},
	)
	counts := map[stacks.Key]stacks.Values{
		{ID: 1}:  {1, 10},
		{ID: 2}:  {2, 20},
		{ID: 3}:  {4, 40},
		{ID: 4}:  {8, 80},
		{ID: 5}:  {32, 320},
		{ID: 6}:  {64, 640},
		{ID: 7}:  {128, 0},
		{ID: 8}:  {256, 0},
		{ID: 9}:  {512, 0},
		{ID: 10}: {1024, 0},
		{ID: 11}: {2048, 0},
		{ID: 12}: {4096, 0},
		{ID: 99}: {16, 160},
	}
	names := naming.Given(store, debugfiletest.NewFinder(t), map[uint64][]symbolize.Frame{
		0xffff10:              {{Name: "read"}},
		0xffff21:              {{Name: "ext4_read", Module: "ext4"}},
		0xffff30:              {{Name: "do_exit"}},
		0xffff3f:              {{Name: "do_exit"}}, // a return address
		0xffff40:              {{Name: "do_syscall_64"}},
		0xffff50:              {{Name: "bprm_execve.part.0"}},
		0x2000:                {{Name: "inner"}, {Name: "outer"}}, // inner was inlined
		0x2011:                {{Name: "main", SystemName: "_main", File: "m.c", StartLine: 3, Line: 4, Offset: 5}},
		stackstest.VdsoAt + 4: {{Name: "an address, not an offset"}},
		4:                     {{Name: "gettime"}},
		0:                     {{Name: "[broken stack]"}},
	})
	store.Count(counts)
	p, _ := buildProfile(clock(t), store, counts, names, profile.Meta{Scope: "test"}, profile.Losses{profile.LossSamples: 3}, nil, nil)

	want := map[string][]int64{
		"app;main;outer;inner;ext4_read;read, end of frame pointers":  {1, 10},
		"app;main;gettime, depth limit":                               {2, 20},
		"jit;[unknown+0x700008];[unknown+0x700000], unreadable stack": {4, 40},
		"jit;[broken stack];[jit+0x600000], broken stack":             {96, 960},
		"kworker/0:1-evt;read, no user stack":                         {8, 80},
		// The process has no user stack any more.
		"app;[exiting];do_syscall_64;do_exit, no user stack":         {128, 0},
		"app;[exec];do_syscall_64;bprm_execve.part.0, no user stack": {256, 0},
		"app;[exec];bprm_execve.part.0, no user stack":               {4096, 0},
		"app;do_syscall_64, unreadable stack":                        {512, 0},
		"app;[exiting];main;do_exit, no user stack":                  {1024, 0},
		"app;[broken stack];main, broken stack":                      {2048, 0},
		"[unknown];[stack lost], " + stackend.Lost.String():          {16, 160},
	}
	if diff := cmp.Diff(want, lines(p)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	losses := profile.Losses{
		profile.LossSamples: 3, profile.LossTraces: 16, profile.LossTruncatedUser: 2, profile.LossTruncatedKernel: 8, profile.LossUserFaults: 516, profile.LossBrokenC: 2048, profile.LossBrokenGenerated: 96, profile.LossUnresolved: 4, profile.LossUnresolvedGenerated: 96, profile.LossUnresolvedFrames: 1,
	}
	if diff := cmp.Diff(losses, p.Losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	if p.Meta.Scope != "test" {
		t.Errorf("got scope %q, want test", p.Meta.Scope)
	}
	for _, s := range p.Samples {
		if s.CPU != -1 {
			t.Errorf("got CPU %d in a profile without CPUs, want -1", s.CPU)
		}
	}
}

// Samples of processes that rules exclude are not in the profile, nor among its losses. Rules decide about
// those that the kernel side left open.
func TestExcluded(t *testing.T) {
	store := stacks.NewStore(stackstest.Layout{})
	store.Judge = func(m bpf.RuleMatch, _ int, _ uint64, _ *containers.Membership) uint64 { return m.Rules &^ 4 }
	for id, may := range []uint64{0, 1, 2, 6} {
		record := stackstest.Trace{ID: uint64(id), PID: 7, Comm: fmt.Sprint("open ", may), Kernel: []uint64{0xffff10}, KernelEnd: stackstest.Cut}.Record(t)
		binary.NativeEndian.PutUint64(record[unsafe.Offsetof(bpf.StackRecord{}.Match)+unsafe.Offsetof(bpf.RuleMatch{}.Rules):], may)
		if err := store.Add(record); err != nil {
			t.Fatal(err)
		}
	}
	store.Count(map[stacks.Key]stacks.Values{{ID: 0}: {1, 10}, {ID: 1}: {2, 20}, {ID: 2}: {4, 40}, {ID: 3}: {8, 80}})
	asked := 0
	leaves := func(may uint64, _ *containers.Membership) bool { asked++; return may == 2 }
	p, excluded := buildProfile(clock(t), store, nil, naming.Given(store, debugfiletest.NewFinder(t), nil), profile.Meta{}, profile.Losses{}, leaves, nil)
	if p.Total(0) != 3 || p.Total(1) != 30 || p.Losses[profile.LossTruncatedKernel] != 3 {
		t.Errorf("got %d samples of %d ns, %d of them truncated, want 3 of 30", p.Total(0), p.Total(1), p.Losses[profile.LossTruncatedKernel])
	}
	if want := (Excluded{Samples: 12, CPU: 120}); excluded != want || asked != 2 {
		t.Errorf("got %+v excluded, want %+v, by %d questions, want 2", excluded, want, asked)
	}
}

// A signal after sampling ends the lookup of names. One warning covers all that is left
// out.
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
		{"after sampling", ended, false, once, true},
		{"it ended sampling", ended, true, once, false},
		{"it ended sampling, and no other can follow", ended, true, nil, false},
		{"it ended sampling, and another follows", ended, true, again, true},
	} {
		store := stackstest.Own(t)
		r := &run{
			options: &Options{Interruptible: test.interruptible},
			loop:    loop.Loop{Interrupted: test.interrupted},
		}
		names := naming.New(store, debugfiletest.NewFinder(t), symbolize.Options{})
		ctx, stop := r.namingContext(test.ctx)
		names.Symbolize(ctx)
		stop()
		want := []string(nil)
		if test.cut {
			want = []string{"interrupted: incomplete names in 1 module; 2 addresses shown as module+offset"}
		}
		if got := names.Warnings(); !slices.Equal(got, want) {
			t.Errorf("%s: got warnings %q, want %q", test.name, got, want)
		}
		store.Count(map[stacks.Key]stacks.Values{{ID: 1}: {1}})
		p, _ := buildProfile(clock(t), store, nil, names, profile.Meta{}, profile.Losses{}, nil, nil)
		unnamed := uint64(0)
		if test.cut {
			unnamed = 1 // the caller is not counted
		}
		if p.Losses[profile.LossUnresolvedFrames] != unnamed {
			t.Errorf("%s: got %d frames without names, want %d", test.name, p.Losses[profile.LossUnresolvedFrames], unnamed)
		}
	}
}

// Frames of this process get names from its executable.
func TestSymbolize(t *testing.T) {
	store := stackstest.Own(t)
	names := naming.New(store, debugfiletest.NewFinder(t), symbolize.Options{})
	names.Symbolize(t.Context())
	store.Count(map[stacks.Key]stacks.Values{{ID: 1}: {1}})
	p, _ := buildProfile(clock(t), store, nil, names, profile.Meta{}, profile.Losses{}, nil, nil)
	const function = "fulgur/internal/capture/stacks/stackstest.NewStore"
	want := "test;[broken stack];" + function + ";" + function + ", broken stack"
	if got := lines(p); len(got) != 1 || got[want] == nil {
		t.Errorf("got %v, want %s", got, want)
	}
	if want := (profile.Losses{profile.LossBrokenUser: 1}); p.Losses != want {
		t.Errorf("got losses %+v, want %+v", p.Losses, want)
	}
	if warnings := names.Warnings(); len(warnings) > 0 {
		t.Errorf("got warnings %v, want none", warnings)
	}
}
