package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// tests are the tests of a package under one kernel.
type tests struct {
	pkg  string
	argv []string // of the test binary, in the machine
}

// queue holds the tests under one kernel that no machine has begun. Its methods may be
// called concurrently.
type queue struct {
	mu   sync.Mutex
	left []tests
}

// newQueue returns the tests to run under kernel k. Those that may take long come first,
// so that machines that share the queue end at nearly the same time. How long they take
// is unknown; the size of their source is a hint.
func newQueue(packages []testPackage, k kernel, opt options) (*queue, error) {
	packages = slices.SortedStableFunc(slices.Values(packages), func(a, b testPackage) int {
		return cmp.Compare(b.size, a.size)
	})
	q := &queue{}
	for _, p := range packages {
		if argv := p.command(k, opt); argv != nil {
			q.left = append(q.left, tests{p.rel, argv})
		}
	}
	if len(q.left) == 0 {
		return nil, fmt.Errorf("kernel %s: no package has tests for it", k.name)
	}
	return q, nil
}

// next removes the first tests and returns them, or none if no tests are left.
func (q *queue) next() tests {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) == 0 {
		return tests{}
	}
	t := q.left[0]
	q.left = q.left[1:]
	return t
}

// packages returns the packages whose tests are left.
func (q *queue) packages() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var names []string
	for _, t := range q.left {
		names = append(names, t.pkg)
	}
	return names
}

// command returns the command that runs the package's tests under kernel k, or nil if
// none of them run there.
func (p testPackage) command(k kernel, opt options) []string {
	pattern := opt.run
	if pattern == "" && opt.one != "" {
		if pattern = p.marks.pattern(k.name == opt.one); pattern == "" {
			return nil
		}
	}
	argv := []string{"/" + p.binary(), "-test.v", fmt.Sprintf("-test.timeout=%v", opt.timeout/2)}
	if pattern != "" {
		argv = append(argv, "-test.run="+pattern)
	}
	if opt.cover {
		argv = append(argv, "-test.coverprofile="+strings.Replace(coverFiles, "*", strings.ReplaceAll(p.rel, "/", "_"), 1))
	}
	return append(argv, opt.args...)
}

// coverFiles matches the coverage profiles that tests write in the machine.
const coverFiles = "/out/*.cover"
