package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/compare"
)

// recording is a file of testdata, with the profiles of runs that were asked for.
type recording struct {
	*packed
	profiles map[string]*profile.Profile
}

func load(t *testing.T, name string) *recording {
	t.Helper()
	k, err := readPacked(filepath.Join("testdata", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	return &recording{k, map[string]*profile.Profile{}}
}

// run returns a run that is as long as some recorded ones together.
func (r *recording) run(t *testing.T, of ...int) compare.Run {
	t.Helper()
	key := fmt.Sprint(of)
	if r.profiles[key] == nil {
		r.profiles[key] = r.profile(of...)
	}
	return compare.Run{Profile: r.profiles[key]}
}

// side returns runs, each as long as length recorded ones, from those with the numbers first,
// first+step, and so on.
func (r *recording) side(t *testing.T, runs, length, first, step int) (list []compare.Run) {
	t.Helper()
	for range runs {
		var of []int
		for range length {
			of = append(of, first)
			first += step
		}
		list = append(list, r.run(t, of...))
	}
	return list
}

// setting is how a user compares: several runs a side, each as long as length recorded ones.
type setting struct{ runs, length int }

// equal compares the runs of r with each other. It returns how many pairs show any change, of how many.
func (s setting) equal(t *testing.T, r *recording) (shown, pairs int) {
	t.Helper()
	for first := 0; first+2*s.runs*s.length <= r.runs; first += 2 * s.runs * s.length {
		// The sides alternate, as they should when noise changes with time.
		c := compare.New(r.side(t, s.runs, s.length, first, 2), r.side(t, s.runs, s.length, first+1, 2), compare.Options{Normalize: compare.Shares})
		if pairs++; len(c.Functions) > 0 {
			shown++
			t.Logf("%d runs of length %d from %d: %s of %s changed", s.runs, s.length, first, c.Functions[0].Name, c.Functions[0].Module)
		}
	}
	return shown, pairs
}

// slower compares runs of steps with those of a slower build. It returns how many pairs show that checksum
// is slower, of how many.
func (s setting) slower(t *testing.T, steps, slow *recording) (found, pairs int) {
	t.Helper()
	for first := 0; first+s.runs*s.length <= slow.runs; first += s.runs * s.length {
		c := compare.New(steps.side(t, s.runs, s.length, 2*first, 2), slow.side(t, s.runs, s.length, first, 1), compare.Options{Normalize: compare.Shares})
		pairs++
		for _, f := range c.Functions {
			if f.Name == "checksum" && f.Self.Beyond && f.Self.Change > 0 {
				found++
			}
		}
	}
	return found, pairs
}

// Of the 200 recorded pairs of equal runs, at most 5 % show any change, and so do sides of several
// runs. A program that is 5 % slower in one function is found in at least 90 % of all comparisons of three
// runs a side, or of one run of three times that length. docs/diff.md has the results of all settings.
func TestRecordedRuns(t *testing.T) {
	steps := load(t, "steps")
	programs := []*recording{steps, load(t, "xz"), load(t, "python")}
	slower := []*recording{load(t, "slower-5"), load(t, "slower-2"), load(t, "slower-1")}
	var table strings.Builder
	for _, s := range []setting{{1, 1}, {1, 3}, {1, 10}, {2, 1}, {3, 1}, {5, 1}, {10, 1}, {5, 2}} {
		shown, pairs := 0, 0
		for _, r := range programs {
			n, of := s.equal(t, r)
			shown, pairs = shown+n, pairs+of
		}
		fmt.Fprintf(&table, "| %d | %.1f s | %d of %d |", s.runs, 1.3*float64(s.length), shown, pairs)
		// One long run has so many samples that they say little about the spread between runs.
		if isLong := s.runs == 1 && s.length > 1; shown > pairs/20 && !isLong {
			t.Errorf("%+v: %d of %d pairs of equal runs show a change, want at most 5 %%", s, shown, pairs)
		}
		for i, slow := range slower {
			found, of := s.slower(t, steps, slow)
			fmt.Fprintf(&table, " %d of %d |", found, of)
			if i == 0 && s.runs*s.length >= 3 && found*10 < of*9 {
				t.Errorf("%+v: found %d of %d programs that are 5 %% slower, want 90 %%", s, found, of)
			}
		}
		table.WriteByte('\n')
	}
	if runtime.GOARCH != "amd64" {
		return // other processors round differently
	}
	doc, err := os.ReadFile("../../docs/diff.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), table.String()) {
		t.Errorf("docs/diff.md has another table than\n%s", &table)
	}
}

// The recordings have 200 pairs of equal runs.
func TestRecordings(t *testing.T) {
	runs := 0
	for _, name := range []string{"steps", "xz", "python"} {
		runs += load(t, name).runs
	}
	if runs < 400 {
		t.Errorf("got %d equal runs, want 400", runs)
	}
}

// What is packed is what was recorded.
func TestPacked(t *testing.T) {
	k, r := newPacked(), load(t, "slower-1")
	for run := range 3 {
		k.add(r.profile(run))
	}
	path := filepath.Join(t.TempDir(), "packed.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(k.write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := readPacked(path)
	if err != nil {
		t.Fatal(err)
	}
	if again.runs != 3 {
		t.Fatalf("got %d runs, want 3", again.runs)
	}
	for run := range 3 {
		want, got := r.profile(run), again.profile(run)
		c := compare.New([]compare.Run{{Profile: want}}, []compare.Run{{Profile: got}}, compare.Options{})
		if want.Total(0) == 0 || c.Few+c.Within == 0 {
			t.Fatalf("run %d: got nothing to compare", run)
		}
		d := profile.Diff([]*profile.Profile{want}, []*profile.Profile{got}, 1)
		for _, s := range d.Samples {
			if s.Values[0] != s.Values[1] {
				t.Fatalf("run %d: a stack has %d samples, want %d", run, s.Values[1], s.Values[0])
			}
		}
	}
}
