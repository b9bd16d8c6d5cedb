package bpf_test

import (
	"errors"
	"io"
	"testing"

	"github.com/cilium/ebpf"

	"fulgur/bpf"
	"fulgur/internal/testenv"
)

// The verifier accepts every program on the running kernel. What it looks at
// depends on how stacks are walked.
func TestLoadOnCPU(t *testing.T) {
	for by, name := range map[bpf.OnCPUUnwindMode]string{
		bpf.OnCPUUnwindModeUNWIND_BY_FRAME_POINTERS: "frame pointers",
		bpf.OnCPUUnwindModeUNWIND_BY_TABLES:         "tables",
		bpf.OnCPUUnwindModeUNWIND_BY_BOTH:           "both",
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := bpf.LoadOnCPU()
			if err != nil {
				t.Fatal(err)
			}
			if err := spec.Variables[bpf.OnCPUVarUnwind].Set(uint32(by)); err != nil {
				t.Fatal(err)
			}
			var objects bpf.OnCPUObjects
			testLoad(t, &objects, &objects.Oncpu, func() error { return spec.LoadAndAssign(&objects, nil) })
		})
	}
}

func TestLoadUnwind(t *testing.T) {
	var objects bpf.UnwindObjects
	testLoad(t, &objects, &objects.UnwindFork, func() error { return bpf.LoadUnwindObjects(&objects, nil) })
}

func TestLoadBranch(t *testing.T) {
	var objects bpf.BranchObjects
	testLoad(t, &objects, &objects.Branch, func() error { return bpf.LoadBranchObjects(&objects, nil) })
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
