package waiting

import (
	"path/filepath"
	"strings"
	"testing"
)

// Each page that is touched first is one fault, of the memory or the file that
// it is of, and major as often as the kernel tells the thread.
func TestTouch(t *testing.T) {
	for _, period := range []int64{1, 10} {
		m := measure(t, "touch", "faults", "-c", []string{1: "1", 10: "10"}[period])
		file := "[" + m.truth.File + "]"
		for _, test := range []struct {
			value, page string
			want        int64
		}{
			{"faults", "[anonymous memory]", m.truth.Anonymous},
			{"faults", file, m.truth.Mapped},
			{"major-faults", file, m.truth.Major},
		} {
			got := m.sum(t, test.value, "toucher", test.page)
			// Other faults of the thread are those of its stack; and every Nth
			// are not the same part of each kind.
			least, most := test.want, test.want+5
			if period > 1 {
				least, most = test.want*4/5, test.want*6/5
			}
			if got < least || got > most {
				t.Errorf("-c %d: %d %s of %s, want %d\n%s", period, got, test.value, filepath.Base(test.page), test.want, m.stderr)
			}
		}
		if !strings.Contains(m.stderr, "how long faults took is unknown") {
			if ns := m.sum(t, "handling", "toucher", ""); ns == 0 || period == 1 && ns > m.truth.Elapsed {
				t.Errorf("-c %d: faults took %d ns of %d", period, ns, m.truth.Elapsed)
			}
		}
		if n := m.sum(t, "faults", "toucher", "fulgur/test/waiting.touch.func1"); n == 0 {
			t.Errorf("no fault in the function that touches\n%s", m.stderr)
		}
	}
}
