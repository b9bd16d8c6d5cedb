package process

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

func TestParseStart(t *testing.T) {
	rest := " S" + strings.Repeat(" 7", 18) + " 4242 9 9"
	for _, name := range []string{"(true)", "(a) b (c)", "()"} {
		got, err := parseStart([]byte("1 " + name + rest))
		if err != nil || got != 4242 {
			t.Errorf("name %s: start %d, error %v", name, got, err)
		}
	}
	for _, s := range []string{"", "1 (x)", "1 (x) S 1 2", "1 (x) S" + strings.Repeat(" y", 30)} {
		if _, err := parseStart([]byte(s)); err == nil {
			t.Errorf("parseStart(%q): no error", s)
		}
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add([]byte("1 (a) b) S" + strings.Repeat(" 7", 30)))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parseStart(b) })
}

func TestIdentify(t *testing.T) {
	a, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Identify(os.Getpid()); err != nil || a != b || a.Start == 0 {
		t.Errorf("identities %v and %v, error %v", a, b, err)
	}
	if _, err := Identify(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such process: error %v", err)
	}
}
