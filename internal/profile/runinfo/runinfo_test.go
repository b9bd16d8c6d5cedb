package runinfo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// full is a profile of a run with everything to describe.
func full() *profile.Profile {
	p := &profile.Profile{Meta: profile.Meta{
		Command: "fulgur profile -F 99 10", Scope: "pid 42", Event: "cycles", Frequency: 9, RequestedFrequency: 99, Reduction: 8, NamesOmitted: true, Period: 7, PerCPU: true,
		Start: time.Unix(0, 1234567890123456789), Duration: 10 * time.Second,
		Host: "h\x1b[2J\u009b\u202e\u2028é😀\x7f", Kernel: "6.12.0", Arch: "x86_64", CPUs: 4, CPUName: "CPU", Memory: 1 << 60,
		Stripped:   profile.StrippedFiles{Omitted: 3, Files: []profile.Stripped{{Path: "/lib/a.so", BuildID: "ab", Exports: true, Samples: 5, Remedy: "install a-dbgsym"}}},
		Unmeasured: []string{"without CAP_BPF: user code only", "2 of 3 threads were not measured"},
		Slowest: []profile.SlowInterval{
			{
				Begin: time.Unix(0, 1234567890223456789), Length: 30 * time.Millisecond, Running: 1, Runnable: 2, Slow: true, PID: 3, TID: 4, Comm: "worker",
				Fields: []profile.Label{{Key: "query", Value: "SELECT '\x1b\u2028é😀'"}, {Key: "arg1", Value: "-1"}},
			},
			{Begin: time.Unix(0, 1234567890123456789), Length: time.Millisecond, Running: time.Millisecond, Comm: "other"},
		},
	}}
	for cause := range p.Losses {
		p.Losses[cause] = uint64(cause) + 1
	}
	return p
}

func TestRoundTrip(t *testing.T) {
	want := full()
	text := Text(want)
	if plain.Terminal(text) != text || strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
		t.Errorf("got %q, want one line of ASCII", text)
	}
	got := &profile.Profile{Meta: profile.Meta{Value: "cpu", Converted: true}, Losses: profile.Losses{profile.LossTooDeep: 1000}}
	if err := Restore(got, text); err != nil {
		t.Fatal(err)
	}
	want.Meta.Value = "cpu"
	want.Losses[profile.LossTooDeep] += 1000
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A description that fulgur did not write changes nothing, or is clamped.
func TestParseHostile(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": "fulgur", "another type": `{"cpus":"four"}`, "long": `{"command":"` + strings.Repeat("x", MaxText) + `"}`,
		"many files": `{"stripped":[{}` + strings.Repeat(",{}", maxFiles) + `]}`,
	} {
		p := full()
		if err := Restore(p, text); err == nil || p.Meta.Command != full().Meta.Command {
			t.Errorf("%s: got error %v, command %q; want an error, and no change", name, err, p.Meta.Command)
		}
	}
	m, l, err := Parse(`{"cpus":-1,"duration_ns":-5,"stripped_omitted":-1,"losses":{"samples":3,"other":4},"new":{}}`)
	if err != nil || m.CPUs != 0 || m.Duration != 0 || m.Stripped.Omitted != 0 || l != (profile.Losses{profile.LossSamples: 3}) {
		t.Errorf("got %+v, %v, %v; want nothing but 3 lost samples", m, l, err)
	}
	m, _, err = Parse(`{"slowest":[{"length_ns":5,"running_ns":4,"runnable_ns":9,"pid":-1},{"length_ns":-5,"running_ns":7}` + strings.Repeat(`,{"length_ns":3}`, 2*profile.MaxSlowest) + `]}`)
	if err != nil || len(m.Slowest) != profile.MaxSlowest {
		t.Fatalf("got %d of the slowest intervals, %v; want %d", len(m.Slowest), err, profile.MaxSlowest)
	}
	for i, s := range m.Slowest {
		if s.Running < 0 || s.Runnable < 0 || s.Running+s.Runnable+s.Waiting() != s.Length || s.PID < 0 || i > 0 && s.Length > m.Slowest[i-1].Length {
			t.Errorf("got %+v, want parts that add up to its length, the longest first", s)
		}
	}
}
