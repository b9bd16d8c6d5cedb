package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files from a machine are neither shown nor logged.
func TestFollowFiles(t *testing.T) {
	var log, shown strings.Builder
	f := follower{log: &log, report: &report{}, dir: t.TempDir(), show: func(line string) { shown.WriteString(line + "\n") }}
	content := strings.Repeat("some content\n", 100)
	text := base64.StdEncoding.EncodeToString([]byte(content))
	out := "before\n" + markFile + "/../out/a\r\n" + text[:100] + "\n" + text[100:] + "\n" + markFileEnd + "\nafter\n"
	if err := f.follow(strings.NewReader(out)); err != nil {
		t.Fatal(err)
	}
	if want := "before\nafter\n"; log.String() != want || shown.String() != want {
		t.Errorf("logged %q, shown %q, want %q", log.String(), shown.String(), want)
	}
	got, err := os.ReadFile(filepath.Join(f.dir, "out", "a"))
	if err != nil || string(got) != content {
		t.Errorf("file contains %q, %v, want %q", got, err, content)
	}
}

// Tests that call testenv.EveryKernel run under every kernel.
func TestEvery(t *testing.T) {
	dir := t.TempDir()
	// Build the call from parts, because make looks for it in the source, too.
	source := strings.ReplaceAll(`package p

func TestA(t *testing.T) { MARK(t) }
func TestB(t *testing.T) { other.Mark(t) }
func TestC(t *testing.T) {
	MARK(t)
	t.Run("x", func(t *testing.T) {})
}
func helper(t *testing.T) { MARK(t) }
`, "MARK", "testenv."+"EveryKernel")
	if err := os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testPackage{dir: dir, files: []string{"a_test.go"}}
	if got, err := p.every(); got != "^(TestA|TestC)$" || err != nil {
		t.Errorf("every() = %q, %v, want ^(TestA|TestC)$", got, err)
	}
}
