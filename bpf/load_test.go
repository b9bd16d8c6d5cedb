package bpf_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/alloc"
	"fulgur/internal/capture/goroutines"
	"fulgur/internal/capture/hits"
	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/rules"
	"fulgur/internal/capture/sources"
	"fulgur/internal/containers"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/testenv"
)

// The verifier accepts each program on the running kernel. The verified code depends on
// the unwind mode, and on whether events are sent or counted.
func TestLoadOnCPU(t *testing.T) {
	testenv.EveryKernel(t)
	var objects bpf.OnCPUObjects
	testLoadWalkers(t, bpf.LoadOnCPU, &objects, &objects, &objects.Oncpu)
}

func TestLoadUnwind(t *testing.T) {
	testenv.EveryKernel(t)
	var objects bpf.UnwindObjects
	testLoad(t, &objects, &objects.UnwindFork, func() error { return bpf.LoadUnwindObjects(&objects, nil) })
}

// Sources with more options than the default ones, on which their programs depend, have tests of their own.
func TestLoadSources(t *testing.T) {
	testenv.EveryKernel(t)
	own := []doctor.Command{doctor.Profile, doctor.Count, doctor.Latency, doctor.Slow, doctor.Alloc}
	for _, subject := range sources.All() {
		if slices.Contains(own, subject.Command()) {
			continue
		}
		t.Run(string(subject.Command()), func(t *testing.T) {
			testLoadSource(t, func(o probe.Options) (loaded, error) {
				all, err := subject.Load(o)
				if err != nil {
					return nil, err
				}
				if len(all) != 1 {
					t.Errorf("got %d sources, want 1", len(all))
				}
				return all[0].(loaded), nil
			})
		})
	}
}

// It loads the programs of all kinds of events.
func TestLoadCount(t *testing.T) {
	testenv.EveryKernel(t)
	testLoadSource(t, func(o probe.Options) (loaded, error) {
		return hits.Load(hits.Options{Options: o})
	})
}

// It loads the programs of all kinds of events, which depend on how events are matched.
func TestLoadLatency(t *testing.T) {
	testenv.EveryKernel(t)
	testLoadSource(t, func(o probe.Options) (loaded, error) {
		if o.Timeline {
			o.Unwind = bpf.UnwindByFramePointers // makes no difference, and is faster
		}
		match := latency.KernelCall
		if o.Timeline {
			match = latency.GoCall
		}
		return latency.Load(latency.Options{Options: o, Match: match})
	})
}

// The parts of intervals are followed.
func TestLoadSlow(t *testing.T) {
	testenv.EveryKernel(t)
	testLoadSource(t, func(o probe.Options) (loaded, error) {
		match := latency.KernelCall
		if o.Timeline {
			match = latency.UserCall
		}
		o.Timeline = false // it has none
		return latency.Load(latency.Options{Options: o, Match: match, Follow: &latency.Follow{Rows: 1, Wakers: true}})
	})
}

// The intervals are waits for locks.
func TestLoadLocks(t *testing.T) {
	testenv.EveryKernel(t)
	testLoadSource(t, func(o probe.Options) (loaded, error) {
		if o.Timeline {
			o.Unwind = bpf.UnwindByFramePointers // makes no difference, and is faster
		}
		return latency.Load(latency.Options{Options: o, Match: latency.SameFieldInThread, Detailed: true, KeepsFirst: true, Wakers: true, Owners: true})
	})
}

func TestLoadAlloc(t *testing.T) {
	testenv.EveryKernel(t)
	testLoadSource(t, func(o probe.Options) (loaded, error) {
		// Instead of a timeline, which makes no difference.
		return alloc.Load(o, alloc.Config{Live: o.Timeline})
	})
}

func TestLoadGoroutines(t *testing.T) {
	testenv.EveryKernel(t)
	testLoadSource(t, func(o probe.Options) (loaded, error) {
		// Instead of a timeline, which makes no difference.
		return goroutines.Load(o, goroutines.Config{WakerStacks: o.Timeline})
	})
}

// Rules that test all properties of processes.
func TestLoadRules(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	owners, err := containers.NewTracker()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owners.Close() })
	slower, err := rules.ParseSlower("5:user=7")
	if err != nil {
		t.Fatal(err)
	}
	given := rules.Rules{Slower: []rules.Slower{slower}, MinAge: time.Second}
	for text, to := range map[string]*[]rules.Rule{"user=0,cgroup=/": &given.Include, "program=/a": &given.Exclude} {
		r, err := rules.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		*to = append(*to, r)
	}
	judge, err := rules.New(given, owners, func(int, uint64) string { return "" }, types)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := judge.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, load := range map[string]func(probe.Options) (loaded, error){
		"oncpu": func(o probe.Options) (loaded, error) { return oncpu.Load(oncpu.Options{Options: o}) },
		"offcpu": func(o probe.Options) (loaded, error) {
			return offcpu.Load(o, offcpu.Config{PendingEntries: 1, States: offcpu.AllStates})
		},
	} {
		t.Run(name, func(t *testing.T) {
			testLoadSource(t, func(o probe.Options) (loaded, error) {
				o.Rules = judge
				return load(o)
			})
		})
	}
}

func TestLoadBranch(t *testing.T) {
	testenv.EveryKernel(t)
	var objects bpf.BranchObjects
	testLoad(t, &objects, &objects.Branch, func() error { return bpf.LoadBranchObjects(&objects, nil) })
}

// Kernels without uprobe_multi links do not load the program of uprobes; see package jumps.
func TestLoadJump(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	multi := features.HaveBPFLinkUprobeMulti()
	if multi != nil && !errors.Is(multi, ebpf.ErrNotSupported) {
		t.Fatal(multi)
	}
	var objects bpf.JumpObjects
	testLoad(t, &objects, &objects.JumpHit, func() error {
		spec, err := bpf.LoadJump()
		if err != nil {
			return err
		}
		if multi != nil {
			spec.Programs[bpf.JumpProgJumpHit] = spec.Programs[bpf.JumpProgJumpBreak]
		} else {
			spec.Programs[bpf.JumpProgJumpHit].AttachType = ebpf.AttachTraceUprobeMulti
		}
		return spec.LoadAndAssign(&objects, nil)
	})
}

// types caches the kernel's types, because decoding them takes long.
var types = btf.NewCache()

// ways are the unwind modes, by name.
var ways = map[bpf.UnwindMode]string{
	bpf.UnwindByFramePointers: "frame pointers",
	bpf.UnwindByTables:        "tables",
	bpf.UnwindByBoth:          "both",
}

// testWays calls load in a subtest for each unwind mode, with and without a timeline. In VMs,
// it leaves out combinations whose code is a part of others'.
func testWays(t *testing.T, load func(t *testing.T, by bpf.UnwindMode, timeline bool)) {
	t.Helper()
	for by, name := range ways {
		for _, timeline := range []bool{false, true} {
			if testenv.BriefInVM() && (by == bpf.UnwindByTables || by == bpf.UnwindByFramePointers && timeline) {
				continue
			}
			t.Run(fmt.Sprintf("%s, timeline %t", name, timeline), func(t *testing.T) { load(t, by, timeline) })
		}
	}
}

// skipRuntimes reports whether a walker leaves out the frames of language runtimes, which
// only a walker with tables shows.
func skipRuntimes(by bpf.UnwindMode) bool { return by == bpf.UnwindByFramePointers }

// Without the frames of language runtimes, the verifier removes their code.
func TestLoadSkipRuntimes(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	memlock.Lift()
	verified := map[bool]uint32{}
	for _, skip := range []bool{false, true} {
		spec, err := bpf.LoadOnCPU()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(
			spec.Variables[bpf.VarUnwind].Set(uint32(bpf.UnwindByBoth)),
			spec.Variables[bpf.VarSkipRuntimes].Set(skip),
		); err != nil {
			t.Fatal(err)
		}
		var objects bpf.OnCPUObjects
		if err := spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{Cache: types}); err != nil {
			t.Fatal(err)
		}
		info, err := objects.Oncpu.Info()
		if err := errors.Join(err, objects.Close()); err != nil {
			t.Fatal(err)
		}
		n, ok := info.VerifiedInstructions()
		if !ok {
			testenv.Unsupported(t, "this kernel does not count verified instructions") // before Linux 5.16
		}
		verified[skip] = n
	}
	t.Logf("instructions verified, by whether runtimes are skipped: %v", verified)
	if verified[true] > verified[false]*2/3 {
		t.Errorf("got %d verified instructions without runtimes, want far fewer than %d", verified[true], verified[false])
	}
}

// loaded is a source: a [probe.Probe] with its programs.
type loaded interface {
	DetachProgram(name string) *ebpf.Program
	Close() error
}

// programNames returns the names of the programs of all families.
func programNames(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	for _, load := range families {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for name := range spec.Programs {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// testLoadSource loads a family of programs like its source, which adapts them to the
// kernel.
func testLoadSource(t *testing.T, load func(probe.Options) (loaded, error)) {
	t.Helper()
	programs := programNames(t)
	testWays(t, func(t *testing.T, by bpf.UnwindMode, timeline bool) {
		testenv.Root(t)
		p, err := load(probe.Options{
			MaxDepth: 127, Unwind: by, Types: types, Timeline: timeline, SkipRuntimes: skipRuntimes(by), Labels: !skipRuntimes(by), Snapshots: true,
		})
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, name := range programs {
			if program := p.DetachProgram(name); program != nil {
				t.Cleanup(func() { program.Close() }) // after the source, which uses it
				checkVerified(t, program)
				checked++
			}
		}
		if checked == 0 {
			t.Error("got no programs")
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// testLoadWalkers loads a family of programs that walk user stacks, in each unwind mode.
func testLoadWalkers(t *testing.T, load func() (*ebpf.CollectionSpec, error), objects any, closer io.Closer, program **ebpf.Program) {
	t.Helper()
	testWays(t, func(t *testing.T, by bpf.UnwindMode, timeline bool) {
		testLoad(t, closer, program, func() error {
			spec, err := load()
			if err != nil {
				return err
			}
			if err := errors.Join(
				spec.Variables[bpf.OnCPUVarUnwind].Set(uint32(by)),
				spec.Variables[bpf.OnCPUVarTimeline].Set(timeline),
				spec.Variables[bpf.VarSkipRuntimes].Set(skipRuntimes(by)),
				spec.Variables[bpf.VarReadLabels].Set(!skipRuntimes(by)),
			); err != nil {
				return err
			}
			return spec.LoadAndAssign(objects, &ebpf.CollectionOptions{Cache: types})
		})
	})
}

// testLoad loads objects and logs the number of verified instructions.
func testLoad(t *testing.T, objects io.Closer, program **ebpf.Program, load func() error) {
	t.Helper()
	testenv.Root(t)
	memlock.Lift()
	if err := load(); err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	defer objects.Close()
	checkVerified(t, *program)
}

// maxVerified is the maximum number of instructions that the verifier should process in a
// program. Verification is most of the time that fulgur takes to start. Before Linux 6.5, a
// scalar that differs between two paths to the same code can multiply it: see unwind_loop()
// and class_of(). Linux 6.1 needs the most, up to 55 987: 4600 of them plan and send snapshots.
// With the IDs of a PID namespace, offcpu_begin needs up to 75 698, with rules.
const (
	maxVerified        = 56_000
	maxVerifiedInPIDNS = 78_000
)

func checkVerified(t *testing.T, program *ebpf.Program) {
	t.Helper()
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok {
		return // before Linux 5.16
	}
	t.Logf("%s: %d instructions verified", info.Name, n)
	most := uint32(maxVerified)
	if bpf.InPIDNamespace() {
		most = maxVerifiedInPIDNS
	}
	if n > most {
		t.Errorf("got %d verified instructions of %s, want at most %d", n, info.Name, most)
	}
}
