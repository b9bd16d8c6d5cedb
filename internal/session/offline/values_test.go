package offline

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/pprof"
)

// valuesFile returns a pprof file with one stack and the given values of a recording:
// samples, cpu, off-cpu and faults.
func valuesFile(t *testing.T, shown, function string, values ...int64) string {
	t.Helper()
	b := profile.NewBuilder(
		profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"},
		profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}, profile.ValueType{Type: "faults", Unit: "count"},
	)
	frame := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: function})})
	b.Add(profile.Sample{Stack: b.Push(0, frame), Task: b.Task(profile.Task{PID: 1, Comm: "test"}), CPU: -1, Values: values})
	var out bytes.Buffer
	if err := pprof.Write(&out, b.Profile(profile.Meta{Value: shown}, profile.Losses{}), pprof.Options{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), function+".pb.gz")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Formats with one value get the value to show first, or another one if that is 0.
func TestConvertChoosesValue(t *testing.T) {
	for _, test := range []struct {
		shown, value string
		values       []int64
		want         string
	}{
		{"", "", []int64{3, 1, 7, 2}, "test;f 3\n"},
		{"cpu", "", []int64{3, 1, 7, 2}, "test;f 1\n"},
		{"off-cpu", "", []int64{3, 1, 7, 2}, "test;f 7\n"},
		{"off-cpu", "cpu", []int64{3, 1, 7, 2}, "test;f 1\n"},
		{"cpu", "", []int64{0, 0, 7, 2}, "test;f 7\n"},
		{"cpu", "", []int64{0, 0, 0, 0}, ""},
	} {
		var out bytes.Buffer
		o := ConvertOptions{Input: valuesFile(t, test.shown, "f", test.values...), Format: "folded", Value: test.value, Stdout: &out, Stderr: io.Discard}
		if code, err := Convert(t.Context(), o); code != 0 || err != nil || out.String() != test.want {
			t.Errorf("%+v: got %d, %v, %q; want 0 and %q", test, code, err, &out, test.want)
		}
	}
}

// A comparison shows a value that both profiles have, and that is not 0 in at least one
// of them.
func TestDiffChoosesValue(t *testing.T) {
	for _, test := range []struct {
		base, changed []int64
		want          string
	}{
		{[]int64{3, 1, 7, 2}, []int64{4, 2, 9, 3}, "test;f 1 2\n"},
		{[]int64{3, 0, 7, 2}, []int64{4, 2, 9, 3}, "test;f 0 2\n"},
		{[]int64{0, 0, 7, 2}, []int64{0, 0, 9, 3}, "test;f 7 9\n"},
	} {
		var out bytes.Buffer
		o := DiffOptions{
			Base: valuesFile(t, "", "f", test.base...), New: valuesFile(t, "cpu", "f", test.changed...),
			Format: "folded", Stdout: &out, Stderr: io.Discard,
		}
		if code, err := Diff(t.Context(), o); code != 0 || err != nil || out.String() != test.want {
			t.Errorf("%+v: got %d, %v, %q; want 0 and %q", test, code, err, &out, test.want)
		}
	}
	o := DiffOptions{
		Base: valuesFile(t, "", "f", 1, 1, 1, 1), New: valuesFile(t, "", "f", 1, 1, 1, 1), Value: "lock-time",
		Format: "folded", Stdout: io.Discard, Stderr: io.Discard,
	}
	if code, err := Diff(t.Context(), o); code != 2 || err == nil || !strings.Contains(err.Error(), "off-cpu") {
		t.Errorf("unknown value: got %d, %v; want 2 and an error about off-cpu", code, err)
	}
}
