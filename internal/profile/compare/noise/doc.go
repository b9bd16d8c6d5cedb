// Package noise tells changes between two sides of runs from noise. It knows numbers only: for
// each quantity, such as the self time of a function, its amount in each run, and the number of
// samples that the amount rests on.
//
// # Model
//
// The rate of a quantity is its amount by exposure: the total of the run for shares, 1 for amounts
// of runs of the same length, the work done for amounts by work. If samples were independent, the
// number of samples of a function would be binomial, or a Poisson number, and the rate of a run
// would vary around the rate of its side by
//
//	v = rate² / samples expected of the run, times (1 - rate) for shares
//
// Samples are not independent: a program has phases, and neighbors on the machine have bursts. So a
// run varies by φ·v, where the dispersion φ is 1 or more (a quasi-Poisson model).
//
// With several runs, φ of each quantity is estimated from the spread of runs around their sides. Three
// runs a side have only 4 degrees of freedom. But most functions of a program vary alike, so the
// estimate of each is moderated by those of all others, as in limma (G. K. Smyth, Linear models and
// empirical Bayes methods for assessing differential expression, 2004): it gets the weight of its
// degrees of freedom, and the common estimate a weight that is high if the estimates agree. It is
// never below 1, since runs cannot vary less than their samples do.
//
// With one run a side, nothing tells the spread between runs. The best that can be said is a lower
// bound: φ is 1, or higher if the changes of all quantities vary more than their counts explain
// (as in genomic control: B. Devlin and K. Roeder, 1999). Real changes of a few functions move this
// estimate little, because it is robust.
//
// Kernel code varies more than programs do: interrupts, page faults and context switches depend on
// what else the machine does, and come in bursts. Its dispersion is estimated apart, and its changes
// have the long tails of a t distribution with few degrees of freedom.
//
// # Decision
//
// A change is beyond noise if two tests agree: a t test with the moderated dispersion, and an exact
// test of the counts, divided by the dispersion, which does not trust the normal distribution where
// there are few samples. Quantities with fewer than [MinSamples] samples on both sides together are
// not tested, since nothing could be found there, and every test makes all others less sensitive.
//
// Thousands of functions are tested, so 5 % of them would seem to change by chance. The p-values are
// corrected by Holm's method, which limits the probability that two equal sides show any change to
// [Alpha], whatever the dependence between the tests. The limit of the false discovery rate
// (Benjamini and Hochberg) is weaker once something changed: it allows false changes beside real
// ones, and a build would fail by one of them. Quantities with the same numbers, such as main and
// what calls it, count as one test.
package noise

// Alpha is the probability that equal sides show a change, and 1 - Alpha that of intervals.
const Alpha = 0.05

// MinSamples is the number of samples on both sides together below which a quantity is not tested.
const MinSamples = 20
