package decode

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What frames look like, see [parseFrame], [cutFile] and [cutOffset]. Matching takes ten times as
// long as they do.
var (
	frameForm  = regexp.MustCompile(`^\s+([0-9a-f]{1,16}) (.+?)(?: \(([^()]*(?:\([^()]*\))?[^()]*)\))?$`)
	offsetForm = regexp.MustCompile(`\+(0x[0-9a-f]+|[0-9]+)$`)
)

// matchedFrame is parseFrame by these forms.
func matchedFrame(line string) (f perfScriptFrame, ok bool) {
	m := frameForm.FindStringSubmatch(line)
	if m == nil {
		return f, false
	}
	f.address, _ = strconv.ParseUint(m[1], 16, 64)
	f.name, f.file = strings.TrimSpace(m[2]), m[3]
	if digits := offsetForm.FindString(f.name); digits != "" && digits != f.name {
		if offset, err := strconv.ParseUint(digits[1:], 0, 64); err == nil {
			f.name, f.offset = strings.TrimSuffix(f.name, digits), offset
		}
	}
	if f.file == "inlined" {
		f.file, f.inlined = "", true
	}
	if _, err := strconv.ParseUint(f.name, 0, 64); err == nil || f.name == "[unknown]" {
		f.name = ""
	}
	return f, true
}

func FuzzParseFrame(f *testing.F) {
	text, err := os.ReadFile("testdata/perf-script.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f.Add(line)
	}
	for _, line := range []string{
		"", " ", "\t1", "\t1 ", "\t1  ", "1 f", "\t1 (x)", "\t1  (x)", "\t1 f (x)", "\t1 f ()", "\t1 f(int) (/bin/x)", "\t1 f (a) (b)",
		"\t1 f (/bin/x (deleted))", "\t1 f (a (b) c)", "\t1 f (a (b)(c))", "\t1 f (a (b (c)))", "\t1 f (a) b)", "\t1 f(a (b) c)", "\t1 f )", "\t1 f ((x)",
		"\t1 (anonymous namespace)::f(int)+0x10 (/bin/x)", "\t1 f+0x (x)", "\t1 f+0x1g (x)", "\t1 f+12", "\t1 f+0xG", "\t1 f+0xA", "\t1 f+09", "\t1 f+1_0", "\t1 +0x1",
		"\t1 f+0x1 +0x2 (x)", "\t1 f+0x11111111111111111 (x)", "\t12345678123456781 f", "\tAb f", "\t1\tf (x)", "\v1 f", "\r\f1 f", "\t1 é (x)", "\t1 \xff (\xfe)", "\t1 0x10 (x)",
		"\t1 [unknown] ([unknown])", "\t1 f (inlined)",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.ReplaceAll(line, "\n", "") // a line has none
		got, ok := parseFrame(line)
		if want, wantOK := matchedFrame(line); got != want || ok != wantOK {
			t.Errorf("%q: got %+v, %v; want %+v, %v", line, got, ok, want, wantOK)
		}
	})
}
