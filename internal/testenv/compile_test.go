package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCompileRequests(t *testing.T) {
	got, err := ParseCompileRequests("# comment\n\nshares gcc -O1 testdata/shares.c # one more\nlib.so g++ -shared a.cc\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []CompileRequest{
		{"shares", "gcc", []string{"-O1", "testdata/shares.c"}},
		{"lib.so", "g++", []string{"-shared", "a.cc"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := ParseCompileRequests("shares gcc\n"); err == nil {
		t.Error("got no error for a line without arguments")
	}
}

// Each request and each source text has a different key.
func TestCompileRequestKey(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]string{}
	add := func(what string, r CompileRequest) {
		t.Helper()
		key, err := r.Key(dir)
		if err != nil {
			t.Fatal(err)
		}
		if seen[key] != "" {
			t.Errorf("%s and %s have the same key", what, seen[key])
		}
		seen[key] = what
	}
	source := filepath.Join(dir, "a.c")
	for _, text := range []string{"int a;", "int b;"} {
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		add(text, CompileRequest{"a", "gcc", []string{"-O1", "a.c"}})
	}
	add("another name", CompileRequest{"b", "gcc", []string{"-O1", "a.c"}})
	add("other flags", CompileRequest{"a", "gcc", []string{"-O2", "a.c"}})
	if _, err := (CompileRequest{"a", "gcc", []string{"gone.c"}}).Key(dir); err == nil {
		t.Error("got no error for a missing source")
	}
}

// A program that was compiled before is a new file, and another source is another program.
func TestCompileAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	compile := func(source string) (path, code string) {
		t.Helper()
		if err := os.WriteFile("a.c", []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		path = Compile(t, "a.o", "gcc", "-c", "a.c")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return path, string(b)
	}
	path, first := compile("int a;")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, second := compile("int a;")
	if again == path || second != first {
		t.Errorf("got %s again, with %d bytes, want a new file with %d bytes", again, len(second), len(first))
	}
	if _, third := compile("int b;"); third == first {
		t.Error("got the program of another source")
	}
}
