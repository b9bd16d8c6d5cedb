package noise

import "math"

// studentTails returns the probability that the magnitude of a variable with Student's t
// distribution is at least that of t. Infinite degrees of freedom are the normal distribution.
func studentTails(t, freedom float64) float64 {
	if math.IsInf(freedom, 1) || freedom > 1e9 {
		return math.Erfc(math.Abs(t) / math.Sqrt2)
	}
	return beta(freedom/(freedom+t*t), freedom/2, 0.5)
}

// studentQuantile returns the value that a variable with Student's t distribution does not exceed
// with probability p, which is above 0.5.
func studentQuantile(p, freedom float64) float64 {
	low, high := 0.0, 1.0
	for studentTails(high, freedom) > 2*(1-p) && high < 1e300 {
		low, high = high, 2*high
	}
	for range 60 {
		middle := (low + high) / 2
		if studentTails(middle, freedom) > 2*(1-p) {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}

// binomialAbove returns the probability of at least a successes if there are a and b failures, each
// success with probability p. Both may be fractions.
func binomialAbove(a, b, p float64) float64 {
	if a <= 0 {
		return 1
	}
	return beta(p, a, b+1)
}

// beta returns the regularized incomplete beta function of x, which is between 0 and 1.
func beta(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2): // where the fraction converges slowly
		return 1 - beta(1-x, b, a)
	}
	all, _ := math.Lgamma(a + b)
	one, _ := math.Lgamma(a)
	other, _ := math.Lgamma(b)
	front := math.Exp(all - one - other + a*math.Log(x) + b*math.Log1p(-x))
	return min(1, front/a*betaFraction(x, a, b))
}

// betaFraction returns the continued fraction of the incomplete beta function, by Lentz's method.
func betaFraction(x, a, b float64) float64 {
	const tiny, precision = 1e-300, 1e-15
	away := func(v float64) float64 { // from zero
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/away(1-(a+b)*x/(a+1))
	fraction := d
	// The number of terms grows with the square root of the larger parameter.
	for m, last := 1.0, 200+10*math.Sqrt(max(a, b)); m < last; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		step := 1.0
		for _, term := range [2]float64{even, odd} {
			d = 1 / away(1+term*d)
			c = away(1 + term/c)
			step = c * d
			fraction *= step
		}
		if math.Abs(step-1) < precision {
			break
		}
	}
	return fraction
}

// asymptotic is a value above which the asymptotic series below are precise.
const asymptotic = 10

// digamma returns the derivative of the logarithm of the gamma function, for positive x.
func digamma(x float64) float64 {
	shift := 0.0
	for ; x < asymptotic; x++ {
		shift -= 1 / x
	}
	s := 1 / (x * x)
	return shift + math.Log(x) - 0.5/x - s*(1.0/12-s*(1.0/120-s*(1.0/252-s*(1.0/240-s/132))))
}

// trigamma returns the derivative of digamma, for positive x.
func trigamma(x float64) float64 {
	shift := 0.0
	for ; x < asymptotic; x++ {
		shift += 1 / (x * x)
	}
	s := 1 / (x * x)
	return shift + 1/x + s/2 + s/x*(1.0/6-s*(1.0/30-s*(1.0/42-s*(1.0/30-s*5/66))))
}

// inverseTrigamma returns the x whose trigamma is y, for positive y.
func inverseTrigamma(y float64) float64 {
	low, high := 0.0, 1.0
	for trigamma(high) > y && high < 1e12 {
		low, high = high, 2*high
	}
	for range 100 {
		if middle := (low + high) / 2; trigamma(middle) > y {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}
