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
