package bpf_test

import (
	"errors"
	"io"
	"testing"

	"github.com/cilium/ebpf"

	"fulgur/bpf"
	"fulgur/internal/testenv"
)

// The verifier accepts every program on the running kernel.
func TestLoadOnCPU(t *testing.T) {
	var objects bpf.OnCPUObjects
	testLoad(t, &objects, &objects.Oncpu, func() error { return bpf.LoadOnCPUObjects(&objects, nil) })
}

func TestLoadOffCPU(t *testing.T) {
	var objects bpf.OffCPUObjects
	testLoad(t, &objects, &objects.OffcpuSwitch, func() error { return bpf.LoadOffCPUObjects(&objects, nil) })
}

// A kernel that is locked down refuses the tracing of its functions.
func TestLoadFaults(t *testing.T) {
	var objects struct {
		Minor *ebpf.Program `ebpf:"minor_fault"`
		Major *ebpf.Program `ebpf:"major_fault"`
	}
	testLoad(t, io.NopCloser(nil), &objects.Minor, func() error {
		spec, err := bpf.LoadFaults()
		if err != nil {
			return err
		}
		return spec.LoadAndAssign(&objects, nil)
	})
}

// Kernels have either tracepoint of what begins.
func TestLoadBlockIO(t *testing.T) {
	var objects struct {
		Insert   *ebpf.Program `ebpf:"request_insert"`
		Issue    *ebpf.Program `ebpf:"request_issue"`
		Complete *ebpf.Program `ebpf:"request_complete"`
		Bio      *ebpf.Program `ebpf:"bio_start"`
	}
	testLoad(t, io.NopCloser(nil), &objects.Issue, func() error {
		spec, err := bpf.LoadBlockIO()
		if err != nil {
			return err
		}
		return spec.LoadAndAssign(&objects, nil)
	})
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
