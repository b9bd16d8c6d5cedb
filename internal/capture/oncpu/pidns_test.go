package oncpu

import (
	"testing"

	"fulgur/internal/testenv"
)

// In a PID namespace, targets and their children are followed, even after they have lost their IDs.
func TestTargetsInPIDNamespace(t *testing.T) {
	testenv.InPIDNamespace(t, "^(TestTargetSet|TestProcessThreads|TestSnapshots)$")
}
