package offline

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// randomPprof returns a profile of one process of a fleet: functions of three files at random addresses,
// some inlined, with labels.
func randomPprof(t *testing.T, random *rand.Rand) *pprof.Profile {
	t.Helper()
	p := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 10_000_000,
		TimeNanos: 1e18 + random.Int64N(1e12), DurationNanos: 1 + random.Int64N(1e10),
	}
	for i := range 3 {
		start := 0x400000 + uint64(random.IntN(1<<30))<<12
		p.Mapping = append(p.Mapping, &pprof.Mapping{
			ID: uint64(i + 1), Start: start, Limit: start + 0x10000, Offset: 0x1000 * uint64(i), File: fmt.Sprintf("/lib/%d.so", i),
			BuildID: []string{"aa", "bb", ""}[i], HasFunctions: true,
		})
	}
	for i := range 20 {
		name := fmt.Sprint("function ", i)
		p.Function = append(p.Function, &pprof.Function{ID: uint64(i + 1), Name: name, SystemName: name, Filename: "a.c"})
	}
	for i := range 30 {
		m := p.Mapping[i%3]
		l := &pprof.Location{ID: uint64(i + 1), Mapping: m, Address: m.Start + uint64(i)*16, Line: []pprof.Line{{Function: p.Function[i%20], Line: int64(i)}}}
		if i%7 == 0 {
			l.Line = append([]pprof.Line{{Function: p.Function[(i+1)%20], Line: 5}}, l.Line...)
		}
		p.Location = append(p.Location, l)
	}
	for range 1 + random.IntN(40) {
		s := &pprof.Sample{
			Value: []int64{1 + random.Int64N(5), random.Int64N(1e9)},
			Label: map[string][]string{"route": {fmt.Sprint(random.IntN(3))}}, NumLabel: map[string][]int64{"bytes": {random.Int64N(2)}},
			NumUnit: map[string][]string{"bytes": {"bytes"}},
		}
		for range 1 + random.IntN(6) {
			s.Location = append(s.Location, p.Location[random.IntN(len(p.Location))])
		}
		p.Sample = append(p.Sample, s)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return p
}

// totals returns the values of a profile for each function and set of labels, and for each stack.
func totals(p *pprof.Profile) map[string][2]int64 {
	sums := map[string][2]int64{}
	for _, s := range p.Sample {
		var stack []string
		for _, l := range s.Location {
			for _, line := range l.Line {
				stack = append(stack, fmt.Sprintf("%s:%d", line.Function.Name, line.Line))
			}
		}
		labels := fmt.Sprint(s.Label, s.NumLabel, s.NumUnit)
		keys := map[string]bool{"stack " + strings.Join(stack, ";") + labels: true}
		for _, function := range stack {
			keys["function "+function+labels] = true
		}
		for key := range keys {
			sums[key] = [2]int64{sums[key][0] + s.Value[0], sums[key][1] + s.Value[1]}
		}
	}
	return sums
}

// writePprof writes a profile to a file.
func writePprof(t *testing.T, p *pprof.Profile, name string) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The sum of pprof files is that of pprof itself, for each function, stack and label. Files at several
// addresses are one.
func TestMergeAgainstPprof(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		dir := t.TempDir()
		var all []*pprof.Profile
		var inputs []string
		for i := range 1 + random.IntN(12) {
			all = append(all, randomPprof(t, random))
			inputs = append(inputs, writePprof(t, all[i], filepath.Join(dir, fmt.Sprintf("%d.pb.gz", i))))
		}
		want, err := pprof.Merge(all)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code, err := Merge(t.Context(), MergeOptions{Inputs: inputs, Format: "pprof", Stdout: &out, Stderr: io.Discard}); code != 0 || err != nil {
			t.Fatalf("got %d, %v", code, err)
		}
		got, err := pprof.Parse(&out)
		if err != nil {
			t.Fatal(err)
		}
		a, b := totals(got), totals(want)
		for _, key := range slices.Sorted(maps.Keys(b)) {
			if a[key] != b[key] {
				t.Fatalf("%s: got %v, want %v as pprof has it", key, a[key], b[key])
			}
		}
		if len(a) != len(b) || len(got.Mapping) != 3 || len(got.Location) > len(want.Location) || len(got.Sample) > len(want.Sample) {
			t.Fatalf("got %d sums, %d mappings, %d locations and %d samples; pprof has %d, %d, %d and %d", len(a), len(got.Mapping), len(got.Location), len(got.Sample),
				len(b), len(want.Mapping), len(want.Location), len(want.Sample))
		}
		if got.TimeNanos != want.TimeNanos || got.DurationNanos != want.DurationNanos || got.Period != want.Period {
			t.Errorf("got time %d, duration %d and period %d, want %d, %d and %d", got.TimeNanos, got.DurationNanos, got.Period, want.TimeNanos, want.DurationNanos, want.Period)
		}
	}
}

// merge writes texts to files, merges them, and returns the sum as folded stacks.
func merge(t *testing.T, o MergeOptions, texts ...string) (string, int, error) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range texts {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.Inputs = append(o.Inputs, path)
	}
	var out bytes.Buffer
	o.Stdout, o.Stderr = &out, io.Discard
	code, err := Merge(t.Context(), o)
	return out.String(), code, err
}

// Profiles of all formats add up, and those for BOLT still do. Others are refused with the reason.
func TestMergeFormats(t *testing.T) {
	const preagg = "B 400be0 400c00 5 1\n"
	script := "sort 1 1.5: 250000 cpu-clock: \n\t113c leaf+0x13 (/bin/t)\n\n"
	pprofFile, err := os.ReadFile(valuesFile(t, "samples", "f", 1, 2, 3, 4))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		texts  []string
		format string
		want   string
		code   int
		err    string
	}{
		{"folded", []string{"a;b 1\n", "a;b 2\na;c 3\n"}, "folded", "a;b 3\na;c 3\n", 0, ""},
		{"BOLT", []string{preagg, preagg}, "", "B 400be0 400c00 10 2\n", 0, ""},
		{"BOLT with its format", []string{preagg}, "preagg", preagg, 0, ""},
		{"BOLT in another format", []string{preagg}, "folded", "", 2, "has their format, preagg"},
		{"both", []string{"a;b 1\n", preagg}, "folded", "", 1, "llvm-bolt"},
		{"no format", []string{"a;b 1\n"}, "", "", 2, "no output format"},
		{"different values", []string{"a;b 1\n", string(pprofFile)}, "folded", "", 1, "profiles of different kinds cannot be added up"},
		{"clang", []string{"main:10:1\n 1: 10\n", "a;b 1\n"}, "folded", "", 1, "llvm-profdata"},
		{"for compilers alone", []string{"main:10:1\n 1: 10\n"}, "", "", 1, "llvm-profdata merge --sample"},
		{"no profile", []string{"a;b 1\n", "\x00\x01\x02"}, "folded", "", 1, "no known format"},
		{"perf script and folded", []string{script, "a;b 1\n"}, "folded", "", 1, "different kinds"},
		{"perf script", []string{script, script}, "folded", "sort;leaf 2\n", 0, ""},
	} {
		got, code, err := merge(t, MergeOptions{Format: test.format}, test.texts...)
		if code != test.code || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %d and %v, want %d and %q", test.name, code, err, test.code, test.err)
		}
		if test.err == "" && !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// Several inputs cannot be standard input.
func TestMergeStandardInput(t *testing.T) {
	if code, err := Merge(t.Context(), MergeOptions{Inputs: []string{"-", "-"}, Stdout: io.Discard, Stderr: io.Discard}); code != 2 || err == nil {
		t.Errorf("got %d and %v, want a usage error", code, err)
	}
}

// The memory of a sum does not depend on the number of profiles: 200 profiles of hosts have the tables of one.
func TestMergeFleet(t *testing.T) {
	testenv.AnyKernel(t)
	dir := t.TempDir()
	var inputs []string
	for i := range 200 {
		p := randomPprof(t, rand.New(rand.NewPCG(5, 6)))
		for _, m := range p.Mapping {
			shift := uint64(i+1) << 20
			m.Start, m.Limit = m.Start+shift, m.Limit+shift
		}
		for _, l := range p.Location {
			l.Address += uint64(i+1) << 20
		}
		inputs = append(inputs, writePprof(t, p, filepath.Join(dir, fmt.Sprintf("%d.pb.gz", i))))
	}
	sum := func(inputs []string) *profile.Profile {
		o := MergeOptions{Inputs: inputs}
		p, err := o.sum(t.Context(), func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one, all := sum(inputs[:1]), sum(inputs)
	if len(all.Samples) != len(one.Samples) || len(all.Stacks) != len(one.Stacks) || len(all.Frames) != len(one.Frames) || len(all.Mappings) != len(one.Mappings) {
		t.Errorf("got %d samples, %d stacks, %d frames and %d mappings, want %d, %d, %d and %d", len(all.Samples), len(all.Stacks), len(all.Frames), len(all.Mappings),
			len(one.Samples), len(one.Stacks), len(one.Frames), len(one.Mappings))
	}
	if all.Total(0) != 200*one.Total(0) {
		t.Errorf("got %d samples, want %d", all.Total(0), 200*one.Total(0))
	}
}
