package bpf_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/bpf"
	"fulgur/internal/testenv"
)

// The verifier accepts every program on the running kernel. What it looks at
// depends on how stacks are walked, and on whether events are sent or counted.
func TestLoadOnCPU(t *testing.T) {
	var objects bpf.OnCPUObjects
	testLoadWalkers(t, bpf.LoadOnCPU, &objects, &objects, &objects.Oncpu)
}

func TestLoadUnwind(t *testing.T) {
	var objects bpf.UnwindObjects
	testLoad(t, &objects, &objects.UnwindFork, func() error { return bpf.LoadUnwindObjects(&objects, nil) })
}

func TestLoadOffCPU(t *testing.T) {
	var objects bpf.OffCPUObjects
	testLoadWalkers(t, bpf.LoadOffCPU, &objects, &objects, &objects.OffcpuSwitch)
}

// A kernel that is locked down refuses the tracing of its functions.
func TestLoadFaults(t *testing.T) {
	var objects struct {
		Minor *ebpf.Program `ebpf:"minor_fault"`
		Major *ebpf.Program `ebpf:"major_fault"`
	}
	testLoadWalkers(t, bpf.LoadFaults, &objects, io.NopCloser(nil), &objects.Minor)
}

// Kernels have either tracepoint of what begins.
func TestLoadBlockIO(t *testing.T) {
	var objects struct {
		Insert   *ebpf.Program `ebpf:"request_insert"`
		Issue    *ebpf.Program `ebpf:"request_issue"`
		Complete *ebpf.Program `ebpf:"request_complete"`
		Bio      *ebpf.Program `ebpf:"bio_start"`
	}
	testLoadWalkers(t, bpf.LoadBlockIO, &objects, io.NopCloser(nil), &objects.Issue)
}

func TestLoadBranch(t *testing.T) {
	var objects bpf.BranchObjects
	testLoad(t, &objects, &objects.Branch, func() error { return bpf.LoadBranchObjects(&objects, nil) })
}

// types are the kernel's, one for all, because decoding them takes long.
var types = btf.NewCache()

// testLoadWalkers loads a family of programs that walk user stacks, each way.
func testLoadWalkers(t *testing.T, load func() (*ebpf.CollectionSpec, error), objects any, closer io.Closer, program **ebpf.Program) {
	t.Helper()
	for by, name := range map[bpf.OnCPUUnwindMode]string{
		bpf.OnCPUUnwindModeUNWIND_BY_FRAME_POINTERS: "frame pointers",
		bpf.OnCPUUnwindModeUNWIND_BY_TABLES:         "tables",
		bpf.OnCPUUnwindModeUNWIND_BY_BOTH:           "both",
	} {
		for _, timeline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, timeline %t", name, timeline), func(t *testing.T) {
				testLoad(t, closer, program, func() error {
					spec, err := load()
					if err != nil {
						return err
					}
					if err := errors.Join(
						spec.Variables[bpf.OnCPUVarUnwind].Set(uint32(by)),
						spec.Variables[bpf.OnCPUVarTimeline].Set(timeline),
					); err != nil {
						return err
					}
					return spec.LoadAndAssign(objects, &ebpf.CollectionOptions{Cache: types})
				})
			})
		}
	}
}

// testLoad loads objects and logs how much of a program there was to verify.
func testLoad(t *testing.T, objects io.Closer, program **ebpf.Program, load func() error) {
	t.Helper()
	testenv.Root(t)
	if err := load(); err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	defer objects.Close()
	info, err := (*program).Info()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := info.VerifiedInstructions()
	t.Logf("%d instructions verified", n)
}
