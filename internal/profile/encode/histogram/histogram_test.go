package histogram

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLines(t *testing.T) {
	for _, test := range []struct {
		name  string
		times Times
		want  string
	}{
		{"none", Times{}, ""},
		{"one", Times{Slots: []Slot{{0, 0, 1}}}, `
count 1, average 0 ns, total 0 ns
p50 0 ns, p90 0 ns, p99 0 ns, p99.9 0 ns, max 0 ns
  0 ns  1 |****************************************`},
		{"wide", Times{Slots: []Slot{{15, 15, 1}, {1 << 20, 9<<17 - 1, 900}, {7 << 18, 15<<17 - 1, 300}, {1 << 31, 9<<28 - 1, 2}}, Sum: 7e9, Max: 2_234_567_890}, `
count 1203, average 5.82 ms, total 7.00 s
p50 1.05–1.18 ms, p90 1.84–1.97 ms, p99 1.84–1.97 ms, p99.9 2.15–2.23 s, max 2.23 s
      8–15 ns     1 |
     16–31 ns     0 |
     32–63 ns     0 |
    64–127 ns     0 |
   128–255 ns     0 |
   256–511 ns     0 |
  0.51–1.0 µs     0 |
   1.0–2.0 µs     0 |
   2.0–4.1 µs     0 |
   4.1–8.2 µs     0 |
    8.2–16 µs     0 |
     16–33 µs     0 |
     33–66 µs     0 |
    66–131 µs     0 |
   131–262 µs     0 |
   262–524 µs     0 |
  0.52–1.0 ms     0 |
   1.0–2.1 ms  1200 |****************************************
   2.1–4.2 ms     0 |
   4.2–8.4 ms     0 |
    8.4–17 ms     0 |
     17–34 ms     0 |
     34–67 ms     0 |
    67–134 ms     0 |
   134–268 ms     0 |
   268–537 ms     0 |
   0.54–1.1 s     0 |
    1.1–2.1 s     0 |
    2.1–4.3 s     2 |`},
		{"narrow, the longest time unknown", Times{Slots: []Slot{{1 << 20, 9<<17 - 1, 8}, {9 << 17, 10<<17 - 1, 4}}, Sum: 14e6, Max: 5}, `
count 12, average 1.17 ms, total 14.0 ms
p50 1.05–1.18 ms, p90 1.18–1.31 ms, p99 1.18–1.31 ms, p99.9 1.18–1.31 ms, max 1.18–1.31 ms
  1.0–1.2 ms  8 |****************************************
  1.2–1.3 ms  4 |********************`},
		{"all", Times{Slots: []Slot{{0, 0, 1}, {15 << 60, math.MaxUint64, math.MaxUint64 - 1}}, Sum: math.MaxUint64}, ""},
	} {
		got := strings.Join(test.times.Lines(), "\n")
		if want := strings.TrimPrefix(test.want, "\n"); got != want && test.name != "all" {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, want)
		}
		for _, line := range test.times.Lines() {
			if strings.Contains(line, "NaN") || utf8.RuneCountInString(line) > 180 {
				t.Errorf("%s: got %q", test.name, line)
			}
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	lines := Times{Slots: []Slot{{1000, 1023, 1}, {1024, 1151, 20}, {2048, 2303, 40}}}.Lines()
	for _, line := range lines {
		if got := Fit(line, 100); got != line {
			t.Errorf("got %q, want %q", got, line)
		}
	}
	full := lines[len(lines)-1]
	columns := utf8.RuneCountInString(full) - 20
	stars := func(line string) int { return strings.Count(line, "*") }
	if got := Fit(full, columns); stars(full) != width || stars(got) != width/2 || !strings.HasPrefix(full, got) || utf8.RuneCountInString(got) != columns {
		t.Errorf("got %q of %q, want half of the bar", got, full)
	}
	if got := Fit(full, 10); got != full {
		t.Errorf("got %q without room for a bar, want %q", got, full)
	}
	if line := strings.Repeat("another line | ", 10); Fit(line, 60) != line {
		t.Errorf("got %q, want %q", Fit(line, 60), line)
	}
}
