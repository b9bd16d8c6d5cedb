package sampleprof

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// summary describes the distribution of counts (ProfileSummary in LLVM). Clang uses it to
// decide which code is hot.
type summary struct {
	total, max, maxHead uint64
	counts, functions   uint64
	cutoffs             []cutoff
}

// cutoff is the number of highest counts that make up a share of the total.
type cutoff struct {
	share    uint64 // of the total, in millionths
	minCount uint64 // the lowest of these counts
	counts   uint64
}

// shares are LLVM's default cutoffs (ProfileSummaryBuilder::DefaultCutoffs).
var shares = [...]uint64{
	10000, 100000, 200000, 300000, 400000, 500000, 600000, 700000, 800000, 900000,
	950000, 990000, 999000, 999900, 999990, 999999,
}

// summarize returns the summary of p.
func (p *Profile) summarize() *summary {
	s := &summary{}
	frequency := map[uint64]uint64{} // number of locations by count
	for _, f := range p.Functions {
		s.functions++
		s.maxHead = max(s.maxHead, f.Head)
		s.add(f, frequency)
	}
	counts := slices.SortedFunc(maps.Keys(frequency), func(a, b uint64) int { return cmp.Compare(b, a) })
	var sum, seen, last uint64
	for _, share := range shares {
		hi, lo := bits.Mul64(s.total, share)
		wanted, _ := bits.Div64(hi, lo, 1000000)
		for sum < wanted && len(counts) > 0 {
			last, counts = counts[0], counts[1:]
			sum = Sum(sum, Product(last, frequency[last]))
			seen += frequency[last]
		}
		s.cutoffs = append(s.cutoffs, cutoff{share, last, seen})
	}
	return s
}

// add adds the counts of f, whose depth is bounded.
func (s *summary) add(f *Function, frequency map[uint64]uint64) {
	for _, r := range f.Body {
		s.total = Sum(s.total, r.Samples)
		s.max = max(s.max, r.Samples)
		s.counts++
		frequency[r.Samples]++
	}
	for _, callee := range f.Inlined {
		s.add(callee, frequency)
	}
}
