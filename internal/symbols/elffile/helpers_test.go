package elffile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
)

// distributionFiles are programs and libraries of Debian.
var distributionFiles = []string{
	"/usr/bin/bash",
	"/usr/bin/python3",
	testenv.Library("libc.so.6"),
	testenv.Library("libstdc++.so.6"),
	"/usr/aarch64-linux-gnu/lib/libc.so.6",
}

// open opens the file at path and closes it when the test ends.
func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(testenv.File(t, path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// fileOf opens a file with the given content and closes it when the test ends.
func fileOf(t testing.TB, content []byte) *File {
	t.Helper()
	f, err := New(bytes.NewReader(content), int64(len(content)), "synthetic")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sectionOf opens a synthetic file, closes it when the test ends, and returns its only
// section.
func sectionOf(t testing.TB, s elftest.Section) *Section {
	t.Helper()
	sections, err := fileOf(t, elftest.File{Sections: []elftest.Section{s}}.Bytes()).Sections()
	if err != nil {
		t.Fatal(err)
	}
	return sections[1]
}

// run runs a tool and returns its standard output. The test is skipped if the tool is not
// installed.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, name), args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	return string(out)
}

// compile compiles a C program with the given compiler and arguments, and
// returns its path.
func compile(t testing.TB, source, compiler string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.out")
	if err := os.WriteFile(in, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, compiler, append(args, "-o", out, in)...)
	return out
}

// contents returns the whole content of a section.
func contents(t testing.TB, s *Section) []byte {
	t.Helper()
	if s == nil {
		t.Fatal("got no such section")
	}
	data, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, data.Size())
	if _, err := data.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}
