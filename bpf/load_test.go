package bpf_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"fulgur/bpf"
	"fulgur/internal/testenv"
)

// The verifier accepts every program on the running kernel.
func TestLoadOnCPU(t *testing.T) {
	testenv.Root(t)
	var objects bpf.OnCPUObjects
	if err := bpf.LoadOnCPUObjects(&objects, nil); err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	defer objects.Close()
	info, err := objects.Oncpu.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := info.VerifiedInstructions()
	t.Logf("%d instructions verified", n)
}
