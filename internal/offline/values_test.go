package offline

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/compare"
	"fulgur/internal/profile/encode/pprof"
)

// valuesFile returns a pprof file with one stack and the given values of a recording:
// samples, cpu and off-cpu in µs, and faults.
func valuesFile(t *testing.T, shown, function string, values ...int64) string {
	t.Helper()
	b := profile.NewBuilder(
		profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"},
		profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}, profile.ValueType{Type: "faults", Unit: "count"},
	)
	values = slices.Clone(values)
	values[1], values[2] = 1000*values[1], 1000*values[2]
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
		{"", "", []int64{3, 1, 7, 2}, "# samples in count\ntest;f 3\n"},
		{"cpu", "", []int64{3, 1, 7, 2}, "# cpu in microseconds\ntest;f 1\n"},
		{"off-cpu", "", []int64{3, 1, 7, 2}, "# off-cpu in microseconds\ntest;f 7\n"},
		{"off-cpu", "cpu", []int64{3, 1, 7, 2}, "# cpu in microseconds\ntest;f 1\n"},
		{"cpu", "", []int64{0, 0, 7, 2}, "# off-cpu in microseconds\ntest;f 7\n"},
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
		{[]int64{3, 1, 7, 2}, []int64{4, 2, 9, 3}, "# base, new in microseconds\ntest;f 1 2\n"},
		{[]int64{3, 0, 7, 2}, []int64{4, 2, 9, 3}, "# base, new in microseconds\ntest;f 0 2\n"},
		{[]int64{0, 0, 7, 2}, []int64{0, 0, 9, 3}, "# base, new in microseconds\ntest;f 7 9\n"},
	} {
		var out bytes.Buffer
		o := DiffOptions{
			Base: []string{valuesFile(t, "", "f", test.base...)}, New: []string{valuesFile(t, "cpu", "f", test.changed...)},
			Normalize: compare.Amounts, Format: "folded", Stdout: &out, Stderr: io.Discard,
		}
		if code, err := Diff(t.Context(), o); code != 0 || err != nil || out.String() != test.want {
			t.Errorf("%+v: got %d, %v, %q; want 0 and %q", test, code, err, &out, test.want)
		}
	}
	o := DiffOptions{
		Base: []string{valuesFile(t, "", "f", 1, 1, 1, 1)}, New: []string{valuesFile(t, "", "f", 1, 1, 1, 1)}, Value: "lock-time",
		Format: "folded", Stdout: io.Discard, Stderr: io.Discard,
	}
	if code, err := Diff(t.Context(), o); code != 2 || err == nil || !strings.Contains(err.Error(), "off-cpu") {
		t.Errorf("unknown value: got %d, %v; want 2 and an error about off-cpu", code, err)
	}
}

// Values of several events are never added up, each can be chosen, and outputs with one of them name
// the others.
func TestEvents(t *testing.T) {
	const script = "a 1/1 1.500000:    2000000 cpu-clock: \n\t1243 work (/x)\n\na 1/1 1.600000:          7 page-faults: \n\t1243 work (/x)\n\na 1/1 1.700000:          5 page-faults: \n\t1243 work (/x)\n\n" +
		"a 1/1 1.800000:          1 context-switches: \n\t1243 work (/x)\n\n"
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		"": "a;work 1\n", "cpu-clock": "# cpu-clock in microseconds\na;work 2000\n", "page-faults samples": "a;work 2\n",
		"page-faults": "a;work 12\n", "context-switches": "a;work 1\n",
	} {
		var out, problems bytes.Buffer
		o := ConvertOptions{Input: file, Format: "folded", Value: value, Stdout: &out, Stderr: &problems}
		code, err := Convert(t.Context(), o)
		got := out.String()
		if i := strings.LastIndex(got, "# "); strings.HasPrefix(got, "# ") && !strings.Contains(want, "# ") {
			got = got[i+strings.Index(got[i:], "\n")+1:]
		}
		if code != 0 || err != nil || got != want {
			t.Errorf("value %q: got %d, %v, %q; want 0 and %q", value, code, err, &out, want)
		}
		if named := strings.Contains(problems.String(), "page-faults, context-switches"); named != (value == "") {
			t.Errorf("value %q: got %q", value, &problems)
		}
	}
	var problems bytes.Buffer
	if code, err := Diff(t.Context(), DiffOptions{Base: []string{file}, New: []string{file}, Format: "folded", Stdout: io.Discard, Stderr: &problems}); code != 0 || err != nil || !strings.Contains(problems.String(), "3 events") {
		t.Errorf("diff: got %d, %v, %q", code, err, &problems)
	}
	problems.Reset()
	if code, err := Report(t.Context(), ReportOptions{Input: file, Functions: 3, Format: "text", Stdout: io.Discard, Stderr: &problems}); code != 0 || err != nil || !strings.Contains(problems.String(), "3 events") {
		t.Errorf("report: got %d, %v, %q", code, err, &problems)
	}
}

// Graphs say that they do not draw negative amounts, and the other formats keep them.
func TestNegative(t *testing.T) {
	in := valuesFile(t, "", "f", -3, 4, -7, 2)
	for format, said := range map[string]string{"svg": "samples", "html": "samples, off-cpu", "speedscope": "samples, off-cpu", "folded": "", "pprof": "", "otlp": "", "firefox": ""} {
		var out, problems bytes.Buffer
		if code, err := Convert(t.Context(), ConvertOptions{Input: in, Format: format, Stdout: &out, Stderr: &problems}); code != 0 || err != nil {
			t.Fatalf("%s: got %d, %v", format, code, err)
		}
		text := "negative amounts of " + said
		if said == "" && problems.Len() > 0 || said != "" && !strings.Contains(problems.String(), text+" are not drawn") {
			t.Errorf("%s: got %q, want %q", format, &problems, text)
		}
		switch format {
		case "svg":
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s does not say %q", format, text)
			}
		case "speedscope":
			if strings.Contains(out.String(), "-3") || !strings.Contains(out.String(), "4000") {
				t.Errorf("got %s", &out)
			}
		}
	}
}

// Folded stacks that state no unit have the unit that the user states.
func TestUnit(t *testing.T) {
	dir := t.TempDir()
	bcc, ours := filepath.Join(dir, "bcc.folded"), filepath.Join(dir, "ours.folded")
	for file, text := range map[string]string{bcc: "a;b 5\n", ours: "# off-cpu in ms\na;b 7\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for input, want := range map[string]string{bcc: "# time in microseconds, without tasks\na;b 5\n", ours: "# off-cpu in microseconds\na;b 7000\n"} {
		var out bytes.Buffer
		o := ConvertOptions{Input: input, Unit: "us", Format: "folded", Stdout: &out, Stderr: io.Discard}
		if code, err := Convert(t.Context(), o); code != 0 || err != nil || out.String() != want {
			t.Errorf("got %d, %v, %q; want 0 and %q", code, err, &out, want)
		}
	}
	var out bytes.Buffer
	o := DiffOptions{Base: []string{bcc}, New: []string{ours}, Normalize: compare.Amounts, Unit: "us", Format: "folded", Stdout: &out, Stderr: io.Discard}
	if code, err := Diff(t.Context(), o); code != 0 || err != nil || out.String() != "# base, new in microseconds, without tasks\na;b 5 7000\n" {
		t.Errorf("got %d, %v, %q; want 0 and 5 and 7000 µs", code, err, &out)
	}
	o.Unit = ""
	if code, err := Diff(t.Context(), o); code != 2 || err == nil {
		t.Errorf("without the unit: got %d, %v; want 2 and an error", code, err)
	}
}

// A comparison in text and folded stacks has short names on request.
func TestDiffShortNames(t *testing.T) {
	base, changed := []string{valuesFile(t, "", "ns::f(int)", 1, 1, 1, 1)}, []string{valuesFile(t, "", "ns::g<a::b>(int)", 1, 1, 1, 1)}
	for _, format := range []string{"text", "folded", "svg"} {
		var out bytes.Buffer
		o := DiffOptions{Base: base, New: changed, Format: format, All: true, ShortNames: true, Stdout: &out, Stderr: io.Discard}
		if code, err := Diff(t.Context(), o); code != 0 || err != nil {
			t.Fatal(code, err)
		}
		if text := out.String(); strings.Contains(text, `">ns::g&lt;`) || format != "svg" && strings.Contains(text, "(int)") || !strings.Contains(text, "ns::g") {
			t.Errorf("%s: got whole names:\n%s", format, text)
		}
	}
}

// diffed returns a comparison as written to standard output.
func diffed(t *testing.T, o DiffOptions) string {
	t.Helper()
	var out bytes.Buffer
	o.Stdout, o.Stderr = &out, io.Discard
	if code, err := Diff(t.Context(), o); code != 0 || err != nil {
		t.Fatalf("%s: got %d, %v, want 0", o.Format, code, err)
	}
	return out.String()
}

// Runs of different lengths are compared by shares: folded stacks have a base in whole samples, and
// text the exact shares.
func TestDiffNormalize(t *testing.T) {
	dir := t.TempDir()
	base, changed := filepath.Join(dir, "base.folded"), filepath.Join(dir, "new.folded")
	for file, text := range map[string]string{base: "app;a 1\napp;b 2\n", changed: "app;a 5\napp;b 5\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := DiffOptions{Base: []string{base}, New: []string{changed}, All: true, Format: "folded"}
	if got, want := diffed(t, o), "app;a 3 5\napp;b 7 5\n"; !strings.HasSuffix(got, want) {
		t.Errorf("folded: got %q, want %q", got, want)
	}
	o.Normalize = compare.Amounts
	if got, want := diffed(t, o), "app;a 1 5\napp;b 2 5\n"; !strings.HasSuffix(got, want) {
		t.Errorf("amounts: got %q, want %q", got, want)
	}
	o.Format, o.Normalize = "text", compare.Automatic
	if got := diffed(t, o); !strings.Contains(got, "33.3") || !strings.Contains(got, "66.7") {
		t.Errorf("text: got %q, want shares of 33.3 and 66.7 %%", got)
	}
	o.Format = "html"
	if got, scaled := diffed(t, o), diffed(t, DiffOptions{Base: o.Base, New: o.New, Normalize: compare.Amounts, Format: "html"}); got != scaled {
		t.Error("html: got another page, which compares shares anyway")
	}
}

// The table is as narrow as the terminal, but not in a file.
func TestDiffColumns(t *testing.T) {
	o := DiffOptions{Base: []string{valuesFile(t, "", "f", 1, 1, 1, 1)}, New: []string{valuesFile(t, "", "g", 1, 1, 1, 1)}, All: true, Format: "text", Columns: 60}
	if got := diffed(t, o); strings.Contains(got, "total") || !strings.Contains(got, "self") {
		t.Errorf("got %q on a narrow terminal, want self values only", got)
	}
	o.Output = filepath.Join(t.TempDir(), "diff.txt")
	diffed(t, o)
	got, err := os.ReadFile(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(got, []byte("total")) {
		t.Errorf("got %q in a file, want total values, too", got)
	}
}
