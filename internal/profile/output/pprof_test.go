package output

import (
	"bytes"
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/profile/decode"
)

// A profile of another tool is the same in pprof's own view after a conversion, and can be subtracted
// from it.
func TestPprofUnchanged(t *testing.T) {
	t.Parallel()
	functions := []*pprof.Function{{ID: 1, Name: "main", Filename: "main.go", StartLine: 1}, {ID: 2, Name: "work", SystemName: "w", Filename: "main.go", StartLine: 10}}
	for name, in := range map[string]*pprof.Profile{
		"block": {SampleType: []*pprof.ValueType{{Type: "contentions", Unit: "count"}, {Type: "delay", Unit: "nanoseconds"}}, Sample: []*pprof.Sample{{Value: []int64{3, 5e9}}}},
		"wall":  {SampleType: []*pprof.ValueType{{Type: "wall", Unit: "microseconds"}}, Sample: []*pprof.Sample{{Value: []int64{-5}}}},
		"heap": {
			SampleType: []*pprof.ValueType{{Type: "alloc_space", Unit: "bytes"}, {Type: "inuse_space", Unit: "bytes"}}, DefaultSampleType: "inuse_space",
			PeriodType: &pprof.ValueType{Type: "space", Unit: "bytes"}, Period: 524288, DropFrames: "malloc", KeepFrames: "main",
			Mapping: []*pprof.Mapping{{ID: 1, Start: 0x400000, Limit: 0x500000, File: "/nowhere/prog", HasFunctions: true}},
			Sample: []*pprof.Sample{
				{Value: []int64{64000, 640}, NumLabel: map[string][]int64{"bytes": {64, 0}}, NumUnit: map[string][]string{"bytes": {"bytes", "bytes"}}},
				{Value: []int64{1, 0}},
			},
		},
		"labels": {
			SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
			PeriodType: &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7, TimeNanos: 17, DurationNanos: 19,
			Comments: []string{"hello", "fulgur"}, DocURL: "http://127.0.0.1/doc",
			Sample: []*pprof.Sample{{
				Value:    []int64{1, 100},
				Label:    map[string][]string{"": {"e"}, "comm": {"c"}, "cpu": {"q"}, "k": {"v2", "v1", "v1"}, "pid": {"abc"}, "tid": {"x"}, "label.a": {"b"}},
				NumLabel: map[string][]int64{"thread": {12, 13}, "pid": {7}},
			}},
		},
	} {
		in.Function = functions
		m := (*pprof.Mapping)(nil)
		if len(in.Mapping) > 0 {
			m = in.Mapping[0]
		}
		in.Location = []*pprof.Location{
			{ID: 1, Mapping: m, Line: []pprof.Line{{Function: functions[0], Line: 3}}},
			{ID: 2, Mapping: m, Line: []pprof.Line{{Function: functions[1], Line: 12, Column: 7}}},
		}
		if m != nil {
			in.Location[0].Address, in.Location[1].Address = 0x401000, 0x401010
		}
		for _, s := range in.Sample {
			s.Location = []*pprof.Location{in.Location[1], in.Location[0]}
		}
		var b bytes.Buffer
		if err := in.Write(&b); err != nil {
			t.Fatal(err)
		}
		in, err := pprof.ParseData(slices.Clone(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := decode.Read(t.Context(), &b, name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Choose("", "pprof")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Write(&b, p, nil, Options{}, 0); err != nil {
			t.Fatal(err)
		}
		out, err := pprof.Parse(&b)
		if err != nil {
			t.Fatal(err)
		}
		// pprof numbers locations anew by their order of use.
		if in, err = pprof.Merge([]*pprof.Profile{in}); err != nil {
			t.Fatal(err)
		}
		again, err := pprof.Merge([]*pprof.Profile{out})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := again.String(), in.String(); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if out.DefaultSampleType != in.DefaultSampleType || out.DropFrames != in.DropFrames || out.KeepFrames != in.KeepFrames || !slices.Equal(out.Comments, in.Comments) {
			t.Errorf("%s: got default value %q, frames to drop %q and to keep %q, comments %q", name, out.DefaultSampleType, out.DropFrames, out.KeepFrames, out.Comments)
		}
		in.Scale(-1)
		rest, err := pprof.Merge([]*pprof.Profile{in, again})
		if err != nil {
			t.Fatalf("%s: pprof cannot subtract the conversion: %v", name, err)
		}
		for _, s := range rest.Sample {
			if slices.ContainsFunc(s.Value, func(n int64) bool { return n != 0 }) {
				t.Errorf("%s: the conversion differs by %v", name, s.Value)
			}
		}
	}
}
