package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// place is a place in llvm-bolt's profile: a function, and an offset in hexadecimal.
type place struct{ function, offset string }

// outcomes are the counts of where branches led, by their place.
type outcomes map[place]map[place]float64

// readOutcomes reads the branches of a profile in llvm-bolt's format whose source and target are in
// the same function. A profile of samples has none. The fields of a line are: kind, function and
// offset of the source, the same of the target, mispredictions, count. Kind 1 is a local symbol.
func readOutcomes(path string) (outcomes, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	o := outcomes{}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 8 || f[0] != "1" || f[3] != "1" || f[1] != f[4] {
			continue
		}
		n, err := strconv.ParseUint(f[7], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		from, to := place{f[1], f[2]}, place{f[4], f[5]}
		if o[from] == nil {
			o[from] = map[place]float64{}
		}
		o[from][to] += float64(n)
	}
	return o, lines.Err()
}

// accuracy is the accuracy of a profile, compared with a count of every branch of the same load.
type accuracy struct {
	// unseen is the share of the program's branches that start where the profile has none.
	unseen float64
	// wrong is the share of the other branches for which the profile shows another outcome: half
	// of the sum of the differences between the shares, weighted by the number of branches.
	wrong float64
}

// compare compares a profile with all branches.
func (o outcomes) compare(all outcomes) (a accuracy) {
	total, seen := 0.0, 0.0
	for from, want := range all {
		n, m := sum(want), sum(o[from])
		total += n
		if m == 0 {
			a.unseen += n
			continue
		}
		seen += n
		for to := range want {
			a.wrong += n * math.Abs(want[to]/n-o[from][to]/m) / 2
		}
		for to := range o[from] {
			if _, ok := want[to]; !ok {
				a.wrong += n * o[from][to] / m / 2
			}
		}
	}
	if total > 0 {
		a.unseen /= total
	}
	if seen > 0 {
		a.wrong /= seen
	}
	return a
}

func sum(counts map[place]float64) (n float64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// String formats a for a row of the report.
func (a accuracy) String() string { return fmt.Sprintf("%.2f %% | %.2f %%", 100*a.unseen, 100*a.wrong) }

// setAccuracy sets the accuracy of the variants whose profiles have branches.
func setAccuracy(variants []variant) error {
	var all outcomes
	for i := range variants {
		if v := &variants[i]; v.file == instrumentedFile {
			var err error
			if all, err = readOutcomes(v.fdata); err != nil {
				return err
			}
		}
	}
	for i := range variants {
		v := &variants[i]
		if v.fdata == "" || v.file == instrumentedFile || all == nil {
			continue
		}
		o, err := readOutcomes(v.fdata)
		if err != nil {
			return err
		}
		if len(o) > 0 {
			a := o.compare(all)
			v.accuracy = &a
		}
	}
	return nil
}
