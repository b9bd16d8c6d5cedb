package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed kernels.txt
var kernelsFile string

// series is a line of kernels.txt.
type series struct {
	arch   string   // as Go and Debian call it
	name   string   // as in 6.1
	suites []string // Debian's suites that have it
	green  string   // newest release seen green, or ""
}

// readSeries parses kernels.txt.
func readSeries(text string) ([]series, error) {
	var list []series
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		switch len(f) {
		case 0:
			continue
		case 4:
		default:
			return nil, fmt.Errorf("kernels.txt: %q does not have 4 columns", line)
		}
		s := series{arch: f[0], name: f[1], suites: strings.Split(f[2], ","), green: f[3]}
		if s.green == "-" {
			s.green = ""
		}
		list = append(list, s)
	}
	return list, nil
}

// chooseSeries returns the series of an architecture with these names, or all of
// them if there are none.
func chooseSeries(list []series, arch string, names []string) ([]series, error) {
	list = slices.DeleteFunc(slices.Clone(list), func(s series) bool { return s.arch != arch })
	if len(names) == 0 {
		return list, nil
	}
	var chosen []series
	for _, name := range names {
		i := slices.IndexFunc(list, func(s series) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("kernels.txt has no kernel %s for %s", name, arch)
		}
		chosen = append(chosen, list[i])
	}
	return chosen, nil
}

// seenGreen reports whether release, or a newer one, was seen green.
func (s series) seenGreen(release string) bool {
	return s.green != "" && compareNatural(release, s.green) <= 0
}

// moves reports whether one series follows the other in the suites.
func (s series) moves() bool { return slices.Contains(s.suites, "sid") }
