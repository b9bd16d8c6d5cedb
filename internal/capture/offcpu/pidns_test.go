package offcpu

import (
	"testing"

	"fulgur/internal/testenv"
)

// In a PID namespace, waits begin and end at the right threads.
func TestWaitsInPIDNamespace(t *testing.T) {
	testenv.InPIDNamespace(t, "^(TestCutWhileThreadsReturn|TestReduce)$")
}
