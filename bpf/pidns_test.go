package bpf_test

import (
	"testing"

	"fulgur/internal/testenv"
)

// The verifier accepts all programs in a PID namespace, where they read IDs differently.
func TestLoadInPIDNamespace(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.InPIDNamespace(t, "^TestLoad(Sources|Rules|Count|Latency|Locks|Alloc)$")
}
