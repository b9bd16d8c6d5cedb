package waiting

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// The first access to each page is one fault, of memory or of the file. The number of
// major faults equals the kernel's count for the thread.
func TestTouch(t *testing.T) {
	testenv.EveryKernel(t)
	// An odd period: pages of the two kinds are touched in turn.
	for _, period := range []int{1, 7} {
		m := measure(t, "touch", "faults", "-c", strconv.Itoa(period))
		file := "[" + m.truth.File + "]"
		for _, test := range []struct {
			value, page string
			want        int64
		}{
			{"faults", "[anonymous memory]", m.truth.Anonymous},
			{"faults", file, m.truth.Mapped},
			{"major-faults", file, m.truth.Major},
		} {
			got := int(m.sum(t, test.value, "toucher", test.page, "fulgur/test/waiting.touchPages"))
			if got%period != 0 {
				t.Errorf("-c %d: got %d %s, want a multiple of the period", period, got, test.value)
			}
			want := stat.EveryNth(int(test.want), period, runtime.NumCPU())
			want.Low -= int(m.skipped() + m.unknownPages(t, test.value))
			if period == 1 && got == 0 && test.want > 0 && test.value == "faults" {
				t.Errorf("got no faults of %s", filepath.Base(test.page))
			}
			if !want.Has(got / period) {
				t.Errorf("-c %d: got %d samples for %d %s of %s, want %s of %d\n%s", period, got/period, got, test.value, filepath.Base(test.page), want, test.want, m.stderr)
			}
		}
		if !strings.Contains(m.stderr, "no fault latency") {
			if ns := m.sum(t, "handling", "toucher", ""); ns == 0 || period == 1 && ns > m.truth.Elapsed {
				t.Errorf("-c %d: faults took %d ns, want more than 0 and at most %d", period, ns, m.truth.Elapsed)
			}
		}
	}
}

// unknownPages returns the faults in touchPages whose page the kernel could not look up: it
// refuses while another thread changes the address space, or when it has not yet released
// the lock of an earlier look-up.
func (m measured) unknownPages(t *testing.T, value string) int64 {
	t.Helper()
	return m.sum(t, value, "toucher", "[unknown page]", "fulgur/test/waiting.touchPages")
}

// The latency of a fault does not include the kernel's earlier work on the same
// page.
func TestFaultAfterKernelAccess(t *testing.T) {
	m := measure(t, "pinned", "faults")
	n := m.sum(t, "faults", "pinned", "[anonymous memory]", "fulgur/test/waiting.pinned.func1")
	if n > m.truth.Anonymous || n+m.skipped() < m.truth.Anonymous {
		t.Errorf("got %d faults of the page, want %d\n%s", n, m.truth.Anonymous, m.stderr)
	}
	if n == 0 || strings.Contains(m.stderr, "no fault latency") {
		return
	}
	if ns := m.sum(t, "handling", "pinned", "[anonymous memory]", "fulgur/test/waiting.pinned.func1"); ns == 0 || ns > m.truth.Waited {
		t.Errorf("the fault took %d ns, want more than 0 and at most the %d of the access; %d ns passed between the kernel's access and this one\n%s", ns, m.truth.Waited, m.truth.Slept, m.stderr)
	}
}

// perf trace, which runs at the same time, has the same faults at the same offsets of the
// file. Everything runs on one CPU, since perf may not know yet about a mapping made on
// another one.
func TestAgainstPerfTrace(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	perf := []string{testenv.Tool(t, "perf"), "trace", "-F", "all", "--no-syscalls", "-m", "2M", "-o", trace, "--", testenv.Tool(t, "taskset"), "-c", "0"}
	m := measureUnder(t, "touch", perf, "faults", "--offsets")
	report, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	// TIME: NAME/THREAD majfault [CODE] => FILE@OFFSET (STATE)
	fault := regexp.MustCompile(`toucher/\d+ (min|maj)fault .* => ` + regexp.QuoteMeta(m.truth.File) + `@0x([0-9a-f]+) `)
	type place struct {
		page  string
		major bool
	}
	want, got := map[place]int64{}, map[place]int64{}
	for _, found := range fault.FindAllStringSubmatch(string(report), -1) {
		offset, err := strconv.ParseInt(found[2], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		offset -= offset % int64(os.Getpagesize())
		want[place{fmt.Sprintf("[%s+%#x]", m.truth.File, offset), found[1] == "maj"}]++
	}
	if len(want) == 0 || int64(len(want)) > m.truth.Mapped { // perf loses some that it reads too late
		t.Fatalf("perf saw %d of %d faults of %s:\n%.2000s", len(want), m.truth.Mapped, m.truth.File, report)
	}
	minor, major := m.index(t, "minor-faults"), m.index(t, "major-faults")
	for _, s := range m.profile.Sample {
		page := functions(s)[0]
		if !slices.Contains(s.Label["comm"], "toucher") || !strings.HasPrefix(page, "["+m.truth.File+"+") {
			continue
		}
		for _, n := range []struct {
			index int
			major bool
		}{{minor, false}, {major, true}} {
			if s.Value[n.index] > 0 {
				got[place{page, n.major}] += s.Value[n.index]
			}
		}
	}
	var lacking int64
	for at, n := range want {
		if got[at] > n {
			t.Fatalf("got %d faults at %+v, want %d as in perf; got %d places, want %d\n%s", got[at], at, n, len(got), len(want), m.stderr)
		}
		lacking += n - got[at]
	}
	if limit := m.skipped() + m.unknownPages(t, "faults"); lacking > limit {
		t.Errorf("%d faults of perf are missing, at %d places, want at most the %d skipped ones and faults of unknown pages\n%s", lacking, len(want), limit, m.stderr)
	}
}
