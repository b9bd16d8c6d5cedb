package profile

import (
	"errors"
	"iter"
	"slices"
	"testing"
)

// sequence yields numbers, then err if it is not nil.
func sequence(err error, numbers ...int64) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		for _, n := range numbers {
			if !yield(n, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

func TestSorted(t *testing.T) {
	by := func(n int64) int64 { return n / 10 }
	in := []int64{30, 10, 20, 11, 50, 12, 40}
	for window, want := range map[int][]int64{
		7: {10, 11, 12, 20, 30, 40, 50},
		2: {10, 11, 20, 12, 30, 40, 50},
		0: in,
	} {
		var got []int64
		for n, err := range Sorted(by, window, sequence(nil, in...)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with a window of %d: got %v, want %v", window, got, want)
		}
	}
	for n := range Sorted(by, 3, sequence(nil, in...)) {
		if n != 10 {
			t.Errorf("got %d first, want 10", n)
		}
		break // ending early must be safe
	}
	failed := errors.New("failed")
	var last error
	for _, err := range Sorted(by, 1, sequence(failed, 1)) {
		last = err
	}
	if !errors.Is(last, failed) {
		t.Errorf("got error %v, want %v", last, failed)
	}
}
