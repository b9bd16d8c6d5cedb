package recording_test

import (
	"bytes"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/recording"
	"fulgur/internal/profile/timeline/timelinetest"
)

// files returns recordings as files in each format with times.
func files(t *testing.T) map[string][]byte {
	t.Helper()
	made := map[string][]byte{}
	for name, line := range map[string]*profile.Timeline{
		"recording": timelinetest.Recording(t),
		"busy":      timelinetest.Busy(t, rand.New(rand.NewPCG(7, 8))), //nolint:gosec // reproducible
	} {
		maps.Copy(made, encoded(t, name, line.Profile, line))
	}
	return made
}

// encoded returns a recording in each format with times.
func encoded(t *testing.T, name string, p *profile.Profile, line *profile.Timeline) map[string][]byte {
	t.Helper()
	made := map[string][]byte{}
	for format, write := range map[string]func(io.Writer) error{
		"firefox": func(w io.Writer) error { return firefox.Write(w, line, firefox.Options{}) },
		"page":    func(w io.Writer) error { return flame.WriteHTML(w, p, flame.Options{Times: line}) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		made[name+" "+format] = b.Bytes()
	}
	return made
}

// read reads a recording.
func read(t *testing.T, file []byte) (*profile.Profile, *profile.Timeline) {
	t.Helper()
	d, err := decode.ReadWith(t.Context(), bytes.NewReader(file), "recording", decode.Options{Times: true})
	if err != nil || d.Times == nil {
		t.Fatalf("got times %v, %v", d.Times, err)
	}
	return d.Profile, d.Times.Timeline(d.Profile, func(s profile.StackID) profile.StackID { return s })
}

// amounts returns the amounts of all stacks, as folded stacks say it, by value.
func amounts(t *testing.T, p *profile.Profile) map[string]int64 {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for v, of := range p.ValueTypes {
		var b strings.Builder
		q := *p.Only(v)
		q.ValueTypes = []profile.ValueType{{Type: of.Type, Unit: "count"}} // exact
		if err := folded.Write(&b, &q, folded.Options{}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			i := strings.LastIndexByte(line, ' ')
			n, err := strconv.ParseInt(strings.TrimSpace(line[i:]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sums[of.Type+": "+line[:i]] += n
		}
	}
	return sums
}

// sum returns the amounts of a recording.
func sum(t *testing.T, line *profile.Timeline) map[string]int64 {
	t.Helper()
	p, err := recording.Sum(line)
	if err != nil {
		t.Fatal(err)
	}
	return amounts(t, p)
}

// The sum of a whole recording is its profile, as it is read without times.
func TestSum(t *testing.T) {
	for name, file := range files(t) {
		p, line := read(t, file)
		if diff := cmp.Diff(amounts(t, p), sum(t, line)); diff != "" {
			t.Errorf("%s (-profile +sum):\n%s", name, diff)
		}
	}
}

// Parts of a recording add up to the whole, wherever they are cut. Only the number of waits can grow, by one for each
// that is cut.
func TestCut(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible
	for name, file := range files(t) {
		_, line := read(t, file)
		whole := sum(t, line)
		for range 10 {
			at := random.Int64N(line.End - line.Start)
			parts := map[string]int64{}
			for _, span := range []recording.Span{{From: math.MinInt64, To: at}, {From: at, To: math.MaxInt64}} {
				part := recording.Cut(line, []recording.Span{span})
				for stack, n := range sum(t, part) {
					parts[stack] += n
				}
				for id := range part.Threads {
					for w := range part.Events.OffCPU(profile.ThreadID(id)) {
						if w.Start < part.Start || w.Start+w.Duration > part.End || w.Runnable > w.Duration {
							t.Fatalf("%s: got a wait of %d ns from %d in the part from %d to %d", name, w.Duration, w.Start, part.Start, part.End)
						}
					}
				}
			}
			for stack, n := range parts {
				if waits := strings.HasPrefix(stack, "samples: ") && n > whole[stack]; n != whole[stack] && !waits {
					t.Errorf("%s, cut after %d ns: the parts of %s are %d, the whole is %d", name, at, stack, n, whole[stack])
				}
			}
			if len(parts) < len(whole) {
				t.Errorf("%s, cut after %d ns: %d stacks are left of %d", name, at, len(parts), len(whole))
			}
		}
	}
}

// A part of a recording begins with 0 when it is written, and has the times of its events.
func TestCutTimes(t *testing.T) {
	const ms = int64(time.Millisecond)
	_, line := read(t, files(t)["recording firefox"])
	part := recording.Cut(line, []recording.Span{{From: 3 * ms, To: 10 * ms}, {From: 20 * ms, To: 27 * ms}})
	if length := part.End - part.Start; length != 24*ms || part.Profile.Meta.Duration != 14*time.Millisecond {
		t.Errorf("got %d ns with %v of measurement, want 24 ms with 14 ms", length, part.Profile.Meta.Duration)
	}
	for format, file := range encoded(t, "", part.Profile, part) {
		_, again := read(t, file)
		var on []int64
		for e, err := range again.Events.OnCPU(0) {
			if err != nil {
				t.Fatal(err)
			}
			on = append(on, (e.Time-again.Start)/ms)
		}
		if want := []int64{0, 1, 2, 23}; !slices.Equal(on, want) {
			t.Errorf("%s: got samples at %v ms, want %v", format, on, want)
		}
		var off int64
		for e, err := range again.Events.OffCPU(0) {
			if err != nil {
				t.Fatal(err)
			}
			off += e.Duration
		}
		// It waited from 5.5 to 25.500001 ms.
		if want := 4*ms + 500_000 + 5*ms + 500_001; off != want {
			t.Errorf("%s: got waits of %d ns, want %d", format, off, want)
		}
	}
}

// Filters leave the same of a recording as of its profile, and when that recording is written and read again.
func TestChoose(t *testing.T) {
	for name, file := range files(t) {
		p, line := read(t, file)
		filters := []string{"process:app", "process:42", "thread:worker", "hide:module:.*", "ignore-fn:x", "focus:futex", "hide:futex", "hide:disk"}
		for i := 1; i < len(p.Frames); i += 11 {
			if name := p.FrameName(profile.FrameID(i)); !strings.ContainsAny(name, `\()[]{}*+?|^$.`+"\n\r") {
				filters = append(filters, "focus:^"+name+"$", "ignore:"+name, "hide:"+name)
			}
		}
		kept := 0
		for i, text := range filters {
			f, err := filter.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			then, err := filter.Parse(filters[(i+7)%len(filters)])
			if err != nil {
				t.Fatal(err)
			}
			for _, list := range []filter.List{{f}, {f, then}} {
				want := amounts(t, list.Apply(p, flame.Key))
				left, err := list.ApplyTimes(line, flame.Key)
				if err != nil {
					t.Fatal(err)
				}
				compared := func(amounts map[string]int64) map[string]int64 { return amounts }
				if hidesNotes(list) { // events keep what notes say
					compared = withoutNotes
				}
				if diff := cmp.Diff(compared(want), compared(sum(t, left))); diff != "" {
					t.Fatalf("%s, %v (-profile +recording):\n%s", name, list, diff)
				}
				if len(want) == 0 {
					continue
				}
				kept++
				_, format, _ := strings.Cut(name, " ")
				again, _ := read(t, encoded(t, "", p, left)[" "+format])
				if diff := cmp.Diff(compared(want), compared(amounts(t, again))); diff != "" {
					t.Fatalf("%s, %v (-profile +recording written and read):\n%s", name, list, diff)
				}
			}
		}
		if kept < len(filters) {
			t.Errorf("%s: filters left something only %d times of %d", name, kept, 2*len(filters))
		}
	}
}

// hidesNotes reports whether one of the filters of TestChoose hides the notes on waits, requests or page faults.
func hidesNotes(list filter.List) bool {
	return slices.ContainsFunc(list, func(f filter.Filter) bool {
		return slices.Contains([]string{"hide:module:.*", "hide:futex", "hide:disk"}, f.String())
	})
}

// withoutNotes returns amounts of stacks without notes at their ends.
func withoutNotes(amounts map[string]int64) map[string]int64 {
	sums := map[string]int64{}
	for stack, n := range amounts {
		for strings.HasSuffix(stack, "]") && strings.Contains(stack, ";[") {
			stack = stack[:strings.LastIndex(stack, ";[")]
		}
		sums[stack] += n
	}
	return sums
}
