package stat

import (
	"math/big"
	"testing"
	"time"
)

// The bounds are compared with exact arithmetic: the sums of the tails are computed as
// fractions.

// half is half of Chance, the part on either side.
var half = new(big.Rat).SetFrac64(1, 2_000_000_000)

// tails checks that r leaves at most half of Chance on either side, and that
// no smaller range does. The function term returns the exact probability of a
// value; values above highest have none.
func tails(t *testing.T, r Range, highest int, term func(int) *big.Rat) {
	t.Helper()
	sum := new(big.Rat)
	for k := range r.Low {
		sum.Add(sum, term(k))
	}
	if sum.Cmp(half) > 0 {
		t.Errorf("%v: got probability %v below, want at most half of Chance", r, float(sum))
	}
	if sum.Add(sum, term(r.Low)); sum.Cmp(half) <= 0 {
		t.Errorf("%v: got a smaller probability than necessary below: %v", r, float(sum))
	}
	sum.SetInt64(0)
	for k := r.High + 1; k <= highest; k++ {
		sum.Add(sum, term(k))
	}
	if sum.Cmp(half) > 0 {
		t.Errorf("%v: got probability %v above, want at most half of Chance", r, float(sum))
	}
	if sum.Add(sum, term(r.High)); sum.Cmp(half) <= 0 {
		t.Errorf("%v: got a smaller probability than necessary above: %v", r, float(sum))
	}
}

func float(r *big.Rat) float64 { f, _ := r.Float64(); return f }

func TestBinomial(t *testing.T) {
	for _, tt := range []struct {
		n          int
		num, denom int64
	}{
		{1, 1, 2},
		{10, 1, 10},
		{64, 1, 2},
		{640, 1, 10}, // 64 expected: 50 is not unusual
		{640, 9, 10},
		{1000, 1, 1000},
	} {
		p, q := big.NewRat(tt.num, tt.denom), big.NewRat(tt.denom-tt.num, tt.denom)
		terms := make([]*big.Rat, tt.n+1)
		for k := range terms {
			v := new(big.Rat).SetInt(new(big.Int).Binomial(int64(tt.n), int64(k)))
			terms[k] = v.Mul(v, power(p, k)).Mul(v, power(q, tt.n-k))
		}
		r := Binomial(tt.n, float64(tt.num)/float64(tt.denom))
		t.Logf("%d × %d/%d: %v", tt.n, tt.num, tt.denom, r)
		tails(t, r, tt.n, func(k int) *big.Rat { return terms[k] })
	}
	if got := Binomial(640, 0.1); !got.Has(50) {
		t.Errorf("50 of 640 with probability 0.1: got range %v without it", got)
	}
	for _, tt := range []struct {
		n    int
		p    float64
		want Range
	}{{0, 0.5, Range{}}, {7, 0, Range{}}, {7, 1, Range{7, 7}}} {
		if got := Binomial(tt.n, tt.p); got != tt.want {
			t.Errorf("Binomial(%d, %v): got %v, want %v", tt.n, tt.p, got, tt.want)
		}
	}
}

func power(r *big.Rat, n int) *big.Rat {
	e := big.NewInt(int64(n))
	return new(big.Rat).SetFrac(new(big.Int).Exp(r.Num(), e, nil), new(big.Int).Exp(r.Denom(), e, nil))
}

// The factor exp(-mean) of the Poisson distribution is not rational. It is the inverse of
// the sum of the other factors, so each probability is a term's share of that sum.
func TestPoisson(t *testing.T) {
	for _, mean := range []int64{1, 3, 20, 100} {
		highest := int(mean)*4 + 60
		terms := make([]*big.Rat, highest+1)
		sum := new(big.Rat)
		for k := range terms {
			terms[k] = big.NewRat(1, 1)
			if k > 0 {
				terms[k].Mul(terms[k-1], big.NewRat(mean, int64(k)))
			}
			sum.Add(sum, terms[k])
		}
		sum.Inv(sum)
		for _, term := range terms {
			term.Mul(term, sum)
		}
		r := Poisson(float64(mean))
		t.Logf("%d: %v", mean, r)
		tails(t, r, highest, func(k int) *big.Rat { return terms[k] })
	}
	if got := Poisson(0); got != (Range{}) {
		t.Errorf("Poisson(0): got %v, want %v", got, Range{})
	}
}

// For large counts, the bounds are close to the normal distribution's: 6.1 standard
// deviations.
func TestLarge(t *testing.T) {
	for _, tt := range []struct {
		got      Range
		mean, sd float64
	}{
		{Binomial(1_000_000, 0.5), 500_000, 500},
		{Poisson(1_000_000), 1_000_000, 1000},
		{Split(2_000_000, 1), 1_000_000, 707},
	} {
		low, high := (tt.mean-float64(tt.got.Low))/tt.sd, (float64(tt.got.High)-tt.mean)/tt.sd
		if low < 6 || low > 6.25 || high < 6 || high > 6.25 {
			t.Errorf("%v: got %.2f standard deviations below the mean and %.2f above, want 6 to 6.25", tt.got, low, high)
		}
	}
}

func TestEveryNth(t *testing.T) {
	for _, tt := range []struct {
		events, n, counters int
		has, not            []int
	}{
		{640, 1, 2, []int{640}, []int{639, 641}},
		{640, 10, 1, []int{50, 64, 80}, []int{15, 130}},
		{5, 10, 1, []int{0, 1}, []int{6}},
		{20, 10, 4, []int{0, 2, 6}, []int{21}},
		{0, 10, 1, []int{0}, []int{1}},
	} {
		r := EveryNth(tt.events, tt.n, tt.counters)
		for _, n := range tt.has {
			if !r.Has(n) {
				t.Errorf("%+v: got range %v without %d", tt, r, n)
			}
		}
		for _, n := range tt.not {
			if r.Has(n) {
				t.Errorf("%+v: got range %v with %d", tt, r, n)
			}
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		cpu, period time.Duration
		slices      int
		want        Range
	}{
		{time.Second, 10 * time.Millisecond, 1, Range{99, 101}},
		{time.Second, 10 * time.Millisecond, 0, Range{100, 100}},
		{time.Millisecond, 10 * time.Millisecond, 1, Range{0, 2}},
		// sqrt(1000 × ln(2e9) / 2) = 103.5
		{10 * time.Second, 10 * time.Millisecond, 1000, Range{896, 1104}},
	} {
		if got := Ticks(tt.cpu, tt.period, tt.slices); got != tt.want {
			t.Errorf("Ticks(%v, %v, %d): got %v, want %v", tt.cpu, tt.period, tt.slices, got, tt.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for n, want := range map[int]bool{2: true, 3: false, 5: false, 6: true} {
		failed := &recorder{}
		Range{3, 5}.Check(failed, "events", n)
		if failed.failed != want {
			t.Errorf("count %d in 3 to 5: got failed %v, want %v", n, failed.failed, want)
		}
	}
}

// recorder is a testing.TB that records whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
