package uprobe

import (
	"testing"

	"fulgur/internal/testenv"
)

// Each class has a cost, and the function that is measured begins with such an instruction.
func TestCost(t *testing.T) {
	testenv.Root(t)
	testenv.EveryKernel(t)
	for c := range classes {
		cost, err := costs[c]()
		if err != nil {
			t.Fatal(err)
		}
		if cost <= 0 {
			t.Errorf("class %d: got %v, want some time", c, cost)
		}
	}
	if _, err := Cost([]byte{0x90}); err != nil {
		t.Error(err)
	}
}
