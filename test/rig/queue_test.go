package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// markedSource returns the source of tests, some of which are marked. The calls are built from parts, because
// make looks for them in the source, too.
func markedSource() string {
	return strings.NewReplacer("EVERY", "testenv."+"EveryKernel", "ONE", "pmu."+"Load").Replace(`package p

func TestA(t *testing.T) { EVERY(t) }
func TestB(t *testing.T) { other.EveryKernel(t) }
func TestC(t *testing.T) {
	ONE(t, pmu.Options{})
	t.Run("x", func(t *testing.T) { EVERY(t) })
}
func TestD(t *testing.T) { t.Run("x", helper) }
func TestE(t *testing.T) { ONE(t) }
func helper(t *testing.T) { loop(t) }
func loop(t *testing.T) { helper(t); ONE(t) }
func (x) TestF(t *testing.T) { EVERY(t) }
`)
}

// writePackage writes a package with one test file.
func writePackage(t *testing.T, rel, source string) testPackage {
	t.Helper()
	p := testPackage{rel: rel, dir: t.TempDir(), files: []string{"a_test.go"}, size: int64(len(source))}
	if err := os.WriteFile(filepath.Join(p.dir, p.files[0]), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.marks, err = readMarks(p.dir, p.files); err != nil {
		t.Fatal(err)
	}
	return p
}

// With -one, only marked tests run, and those for one kernel only under that one.
func TestQueue(t *testing.T) {
	packages := []testPackage{
		writePackage(t, "internal/small", "package p\n\nfunc TestA(t *testing.T) {}\n"),
		writePackage(t, "internal/large", markedSource()),
	}
	for _, tc := range []struct {
		name string
		opt  options
		want []tests
	}{
		{
			name: "the largest first",
			opt:  options{timeout: time.Minute, args: []string{"-update"}},
			want: []tests{
				{"internal/large", []string{"/src/internal/large/large.test", "-test.v", "-test.timeout=30s", "-update"}},
				{"internal/small", []string{"/src/internal/small/small.test", "-test.v", "-test.timeout=30s", "-update"}},
			},
		},
		{
			name: "tests for every kernel",
			opt:  options{one: "5.10"},
			want: []tests{
				{"internal/large", []string{"/src/internal/large/large.test", "-test.v", "-test.timeout=0s", "-test.run=^(TestA|TestC)$"}},
			},
		},
		{
			name: "tests for one kernel, too",
			opt:  options{one: "6.1"},
			want: []tests{
				{"internal/large", []string{"/src/internal/large/large.test", "-test.v", "-test.timeout=0s", "-test.run=^(TestA|TestC|TestD|TestE)$"}},
			},
		},
		{
			name: "selected tests",
			opt:  options{one: "6.1", run: "a b|c", cover: true},
			want: []tests{
				{"internal/large", []string{"/src/internal/large/large.test", "-test.v", "-test.timeout=0s", "-test.run=a b|c", "-test.coverprofile=/out/internal_large.cover"}},
				{"internal/small", []string{"/src/internal/small/small.test", "-test.v", "-test.timeout=0s", "-test.run=a b|c", "-test.coverprofile=/out/internal_small.cover"}},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q, err := newQueue(packages, kernel{series: series{name: "6.1"}}, tc.opt)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, q.left, cmp.AllowUnexported(tests{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := newQueue(packages[:1], kernel{series: series{name: "6.1"}}, options{one: "6.1"}); err == nil {
		t.Error("got no error for a kernel without tests")
	}
}

// The queue hands tests out once each, in their order.
func TestQueueNext(t *testing.T) {
	q := queueOf("a", "b")
	for _, want := range []string{"a", "b", "", ""} {
		if got := q.next(); got.pkg != want {
			t.Errorf("got tests of %q, want %q", got.pkg, want)
		}
	}
	if left := q.packages(); len(left) != 0 {
		t.Errorf("packages() = %v, want none", left)
	}
}

// queueOf returns a queue with the tests of some packages.
func queueOf(packages ...string) *queue {
	q := &queue{}
	for _, p := range packages {
		q.left = append(q.left, tests{p, []string{"/src/" + p + "/" + p + ".test", "-test.v"}})
	}
	return q
}
