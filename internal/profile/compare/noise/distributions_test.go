package noise

import (
	"math"
	"testing"
)

// near fails unless got is want, but for a small relative error.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*math.Abs(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// The values are those of printed tables and of closed forms.
func TestStudent(t *testing.T) {
	for _, c := range []struct{ p, freedom, want float64 }{
		{0.975, 1, 12.7062047362}, {0.975, 2, 4.30265272991}, {0.975, 4, 2.7764451052}, {0.975, 30, 2.0422724563},
		{0.975, math.Inf(1), 1.95996398454}, {0.9995, 4, 8.6103015814}, {0.995, 3, 5.8409093097},
	} {
		near(t, "quantile", studentQuantile(c.p, c.freedom), c.want, 1e-9)
		near(t, "tails", studentTails(c.want, c.freedom), 2*(1-c.p), 1e-8)
	}
	for _, x := range []float64{0.01, 0.5, 3, 1e3, 1e8} {
		near(t, "1 degree of freedom", studentTails(x, 1), 2/math.Pi*math.Atan(1/x), 1e-9)
		near(t, "2 degrees of freedom", studentTails(x, 2), 2/(2+x*x+x*math.Sqrt(2+x*x)), 1e-7)
	}
	if got := studentTails(0, 7); got != 1 {
		t.Errorf("got %v at 0, want 1", got)
	}
}

// The sum of the probabilities of a binomial distribution is its tail.
func TestBinomialAbove(t *testing.T) {
	for _, n := range []int{1, 7, 60, 900} {
		for _, p := range []float64{0.01, 0.3, 0.5, 0.97} {
			sum := 0.0
			for k := n; k >= 0; k-- {
				all, _ := math.Lgamma(float64(n + 1))
				one, _ := math.Lgamma(float64(k + 1))
				other, _ := math.Lgamma(float64(n - k + 1))
				sum += math.Exp(all - one - other + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
				if sum > 1e-250 {
					near(t, "tail", binomialAbove(float64(k), float64(n-k), p), sum, 1e-9)
				}
			}
		}
	}
}

// Fractions lie between whole numbers, and the function falls with the successes.
func TestBinomialAboveFractions(t *testing.T) {
	last := 1.0
	for a := 0.0; a <= 100; a += 0.25 {
		now := binomialAbove(a, 100-a, 0.4)
		if !(now <= last && now >= 0) {
			t.Fatalf("got %v for %v successes, after %v", now, a, last)
		}
		last = now
	}
}

func TestBetaOfLargeNumbers(t *testing.T) {
	for _, n := range []float64{1e4, 1e6, 1e8} {
		near(t, "median", beta(0.5, n, n), 0.5, 1e-3)
		near(t, "a deviation", beta(0.5, n+math.Sqrt(n/2), n-math.Sqrt(n/2)), 0.15865525, 1e-2)
	}
}

func TestGammaDerivatives(t *testing.T) {
	const euler = 0.57721566490153286
	near(t, "digamma(1)", digamma(1), -euler, 1e-9)
	near(t, "digamma(1/2)", digamma(0.5), -euler-2*math.Ln2, 1e-9)
	near(t, "trigamma(1)", trigamma(1), math.Pi*math.Pi/6, 1e-9)
	near(t, "trigamma(1/2)", trigamma(0.5), math.Pi*math.Pi/2, 1e-9)
	for _, x := range []float64{0.05, 0.7, 3, 40, 1e5} {
		near(t, "digamma(x + 1)", digamma(x+1), digamma(x)+1/x, 1e-8)
		near(t, "inverse", inverseTrigamma(trigamma(x)), x, 1e-6)
		const step = 1e-4
		near(t, "slope", (digamma(x+step*x)-digamma(x-step*x))/(2*step*x), trigamma(x), 1e-4)
	}
}
