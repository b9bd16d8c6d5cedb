package e2e

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// timeRange matches a time or limits of one in a summary.
const timeRange = `([\d.]+)(?:–([\d.]+))? (s|ms|µs|ns)`

// timeAfter returns the limits in ns of the first time after a word in the text, and half of its last
// digit.
func timeAfter(t *testing.T, text, word string) (low, high, rounding float64) {
	t.Helper()
	m := regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + ` ` + timeRange).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s:\n%s", word, text)
	}
	unit := map[string]float64{"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}[m[3]]
	if m[2] == "" {
		m[2] = m[1]
	}
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		_, decimals, _ := strings.Cut(text, ".")
		rounding = max(rounding, unit*math.Pow(10, -float64(len(decimals)))/2)
		return n * unit
	}
	return number(m[1]), number(m[2]), rounding
}

// Percentiles of the times of calls are between those of two bounds that the program itself logged for
// each call, and at most an eighth apart. The longest time is exact.
func TestLatencyPercentiles(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := compile(t, "durations.c", "durations")
	name := "uprobe:" + program + ":nap"
	r := fulgur(t, "latency", "-e", name, "-o", t.TempDir()+"/out.folded", "--", program)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	var inside, around []float64
	for line := range strings.Lines(r.stdout) {
		var a, b float64
		if _, err := fmt.Sscan(line, &a, &b); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		inside, around = append(inside, a), append(around, b)
	}
	slices.Sort(inside)
	slices.Sort(around)
	m := regexp.MustCompile(regexp.QuoteMeta(name) + `\n +count (\d+), average `).FindStringSubmatch(r.stderr)
	if m == nil {
		t.Fatalf("no distribution:\n%s", r.stderr)
	}
	n, err := strconv.Atoi(m[1])
	if want := hits(len(inside), 1, r.stderr); err != nil || !want.Has(n) || n == 0 {
		t.Fatalf("got %s calls, want %s\n%s", m[1], want, r.stderr)
	}
	_, rest, _ := strings.Cut(r.stderr, m[0])
	missing := len(inside) - n // the kernel reports no hits while another program attaches
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p99.9", .999}, {"max", 1}} {
		low, high, rounding := timeAfter(t, rest, p.name)
		rank := int(math.Ceil(p.share*float64(n))) - 1
		if high+rounding < inside[rank] || low-rounding > around[rank+missing] {
			t.Errorf("got %s %v to %v, want %v to %v\n%s", p.name, low, high, inside[rank], around[rank+missing], r.stderr)
		}
		if high-low-2*rounding > low/8 || p.name == "max" && low != high {
			t.Errorf("%s: got %v to %v, want closer bounds\n%s", p.name, low, high, r.stderr)
		}
	}
}
