package profile

import "testing"

// counts returns losses with a count for each cause, from of.
func counts(of func(i uint64) uint64) (l Losses) {
	for i := range l {
		l[i] = of(uint64(i))
	}
	return l
}

// Plus adds the counts of all causes.
func TestLossesPlus(t *testing.T) {
	a, b := counts(func(i uint64) uint64 { return i + 1 }), counts(func(uint64) uint64 { return 100 })
	if got, want := a.Plus(b), counts(func(i uint64) uint64 { return i + 101 }); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

// Minus subtracts the counts of all causes. It does not go below 0 where an estimate
// shrank.
func TestLossesMinus(t *testing.T) {
	a, b := counts(func(i uint64) uint64 { return i + 1 }), counts(func(uint64) uint64 { return 100 })
	if got := a.Plus(b).Minus(b); got != a {
		t.Errorf("got %d, want %d", got, a)
	}
	if got := a.Minus(b); got != (Losses{}) {
		t.Errorf("got %d, want nothing", got)
	}
}
