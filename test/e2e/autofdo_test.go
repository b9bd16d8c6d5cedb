package e2e

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

// LLVM's own tool makes the same profile of the same recording, line by line.
func TestConvertForClang(t *testing.T) {
	parallel(t)
	profgen := testenv.Tool(t, "llvm-profgen-19")
	profdata := testenv.Tool(t, "llvm-profdata-19")
	for name, r := range recordings(t) {
		if name == "perf.data" {
			continue // its binary has no debug information
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			theirs, ours := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours.prof")
			args := []string{"--format", "text", "--ignore-stack-samples", "--use-dwarf-correlation", "--perfscript", r.input, "--binary", r.binary, "-o", theirs}
			if b, err := exec.Command(profgen, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			res := fulgur(t, "convert", "--format", "autofdo-text", "--binary", r.binary, "-o", ours, r.input)
			if res.code != 0 || !strings.Contains(res.stderr, "-fprofile-sample-use=") {
				t.Fatalf("result = %+v, want exit code 0 and a command for clang", res)
			}
			if d := cmp.Diff(read(t, theirs), read(t, ours)); d != "" {
				t.Errorf("(-llvm-profgen +fulgur):\n%s", d)
			}
			// In the binary format, the profile is the same for LLVM.
			if res := fulgur(t, "convert", "-q", "--binary", r.binary, "-o", ours, r.input); res.code != 0 || res.stderr != "" {
				t.Fatalf("result = %+v, want no message", res)
			}
			asText := func(path string) string {
				t.Helper()
				text, err := exec.Command(profdata, "merge", "--sample", "--text", "-o", "-", path).Output()
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			if d := cmp.Diff(asText(theirs), asText(ours)); d != "" {
				t.Errorf("(-llvm-profgen +fulgur):\n%s", d)
			}
		})
	}
}

// Profiles that cannot be made or merged are rejected with a reason.
func TestRefusedForClang(t *testing.T) {
	all := recordings(t)
	dir := t.TempDir()
	// An equal build ID, or no build ID as here, proves nothing if the code differs.
	right := all["text"]
	code, err := os.ReadFile(right.binary)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(right.binary)
	if err != nil {
		t.Fatal(err)
	}
	text := f.Section(".text")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	copy(code[text.Offset:], bytes.Repeat([]byte{0x90}, int(text.Size)))
	other := writeTo(t, filepath.Join(dir, "a.out"), string(code))
	preagg := convert(t, right)
	samples := writeTo(t, filepath.Join(dir, "samples.prof"), "main:1:1\n 1: 1\n")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no debug information":   {[]string{"convert", "--format", "autofdo", "--binary", all["perf.data"].binary, all["perf.data"].input}, "no debug information: build it with clang -g"},
		"other code":             {[]string{"convert", "--format", "autofdo", "--binary", other, right.input}, "is not the code that ran"},
		"other code for BOLT":    {[]string{"convert", "--format", "preagg", "--binary", other, right.input}, "is not the code that ran"},
		"other code of a preagg": {[]string{"convert", "--format", "autofdo", "--binary", other, preagg}, "is not the code that ran"},
		"no binary":              {[]string{"convert", "--format", "autofdo", right.input}, "no binary given"},
		"preagg without binary":  {[]string{"convert", "--format", "autofdo", preagg}, "no binary given"},
		"no branches":            {[]string{"convert", "--format", "autofdo", "--basic", "--binary", right.binary, right.input}, "is only for BOLT"},
		"merge":                  {[]string{"merge", preagg, samples}, "llvm-profdata merge --sample"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fulgur(t, test.args...)
			if r.code == 0 || r.stdout != "" || !strings.Contains(r.stderr, test.want) {
				t.Errorf("result = %+v, want an error about %q and no output", r, test.want)
			}
		})
	}
}

var applied = regexp.MustCompile(`remark: Applied [1-9]\d* samples from profile`)

// A command is profiled by stepping, and clang uses the profile.
func TestAutoFDO(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	flags := []string{"-O2", "-g1", "-fdebug-info-for-profiling", "../../internal/branches/autofdo/testdata/shapes.cc"}
	clang, dir := testenv.Tool(t, "clang++-19"), t.TempDir()
	program, profile := filepath.Join(dir, "shapes"), filepath.Join(dir, "shapes.prof")
	if b, err := exec.Command(clang, append([]string{"-o", program}, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	for rounds := 30000; ; rounds *= 4 { // until there is a burst, however busy the machine is
		s := summaryOf(t, 0, fulgur(t, slices.Concat([]string{"autofdo", "-o", profile}, stepFast, []string{"--", program, strconv.Itoa(rounds)})...))
		if len(s.Binaries) == 1 && s.Records > 0 {
			break
		}
		if rounds > 5_000_000 {
			t.Fatalf("summary = %+v, want records of one binary", s)
		}
	}
	args := append([]string{"-o", os.DevNull, "-c", "-fprofile-sample-use=" + profile, "-Rpass-analysis=sample-profile"}, flags...)
	b, err := exec.Command(clang, args...).CombinedOutput()
	if err != nil || !applied.Match(b) {
		t.Errorf("error %v; clang says\n%s\nwant that it applied samples", err, b)
	}
}
