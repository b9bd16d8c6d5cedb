package distribution

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

const slots = len(Kernel{}.Slots)

// The slots have all times, without gaps, and each is at most an eighth of its times wide.
func TestBounds(t *testing.T) {
	next := uint64(0)
	for slot := range slots {
		low, high := bounds(slot)
		if low != next || high < low || (high-low+1)*8 > max(low, 8) {
			t.Errorf("slot %d: got %d to %d, want it to begin at %d and to be narrow", slot, low, high, next)
		}
		next = high + 1
	}
	if next != 0 {
		t.Errorf("the slots end before %d", next)
	}
}

// The kernel side puts the bounds of each slot into that slot.
func TestKernelSlots(t *testing.T) {
	program := testenv.Compile(t, "slots", "gcc", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-function", "-Wno-unknown-pragmas", "-D__TARGET_ARCH_x86", "testdata/slots.c")
	var input, want strings.Builder
	for slot := range slots {
		low, high := bounds(slot)
		fmt.Fprintln(&input, low, high)
		fmt.Fprintf(&want, "%d\n%d\n", slot, slot)
	}
	cmd := exec.Command(program)
	cmd.Stdin = strings.NewReader(input.String())
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("got the slots\n%s\nwant\n%s", got, &want)
	}
}

// add counts a time as the kernel side does.
func add(k *Kernel, ns uint64) {
	slot := 0
	for ; slot < slots; slot++ {
		if low, high := bounds(slot); ns >= low && ns <= high {
			break
		}
	}
	k.Slots[slot]++
	k.Sum += ns
	m := &k.Maxima[ns%uint64(len(k.Maxima))]
	m.Ns = max(m.Ns, ns)
}

// Percentiles are within the bounds, which are at most an eighth apart; the longest time is exact.
func TestPercentiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var parts [3]Kernel
		n, scale := 1+random.IntN(3000), math.Exp2(float64(random.IntN(40)))
		times := make([]uint64, n)
		for i := range times {
			times[i] = uint64(scale * math.Exp(random.NormFloat64()))
			add(&parts[random.IntN(len(parts))], times[i])
		}
		slices.Sort(times)
		got := Of(parts[:]...)
		if got.Count() != uint64(n) || got.Max != times[n-1] {
			t.Fatalf("got %d times up to %d, want %d up to %d", got.Count(), got.Max, n, times[n-1])
		}
		for _, thousandths := range []uint64{0, 1, 500, 900, 990, 999, 1000} {
			rank := max((uint64(n)*thousandths+999)/1000, 1)
			want := times[rank-1]
			low, high := got.Percentile(thousandths)
			if want < low || want > high || (high-low)*8 > max(low, 8) {
				t.Fatalf("%d of 1000 in %d times: got %d to %d, want %d", thousandths, n, low, high, want)
			}
			if rank == uint64(n) && (low != want || high != want) {
				t.Fatalf("got the longest time %d to %d, want %d", low, high, want)
			}
		}
	}
}

// If concurrent writers left out the longest time, the limits of its slot are known.
func TestMaximumLeftOut(t *testing.T) {
	var k Kernel
	for _, ns := range []uint64{1000, 100_000} {
		add(&k, ns)
	}
	for i := range k.Maxima {
		k.Maxima[i].Ns = min(k.Maxima[i].Ns, 1000)
	}
	if low, high := Of(k).Percentile(1000); low == high || low > 100_000 || high < 100_000 {
		t.Errorf("got %d to %d, want the slot of 100000", low, high)
	}
}
