package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// The calls that mark tests, in the test function or in what it calls in its package.
var (
	// Tests with one of these calls run under every kernel.
	everyMarks = []string{"testenv.EveryKernel"}
	// Tests with one of these calls run under one kernel: other machines may lack what they need.
	oneMarks = []string{"testenv.OneKernel", "testenv.VM", "testenv.Breakpoints", "pmu.Load"}
)

// marks holds the names of a package's marked tests, sorted.
type marks struct {
	every, one []string
}

// readMarks finds the marked tests in the test files of a package.
func readMarks(dir string, files []string) (marks, error) {
	calls := make(map[string][]string) // by function, of functions of the package and of imported ones
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return marks{}, err
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				calls[fn.Name.Name] = append(calls[fn.Name.Name], callees(fn)...)
			}
		}
	}
	return marks{every: callers(calls, everyMarks), one: callers(calls, oneMarks)}, nil
}

// callees returns the names of the functions that fn mentions: f, or package.F.
func callees(fn *ast.FuncDecl) (names []string) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				names = append(names, x.Name+"."+n.Sel.Name)
				return false
			}
		case *ast.Ident:
			names = append(names, n.Name)
		}
		return true
	})
	return names
}

// callers returns the tests that call one of the marks, directly or through other functions of the package.
func callers(calls map[string][]string, marks []string) (tests []string) {
	reached := make(map[string]bool)
	for next := slices.Clone(marks); len(next) > 0; {
		callee := next[0]
		next = next[1:]
		for caller, names := range calls {
			if !reached[caller] && slices.Contains(names, callee) {
				reached[caller] = true
				next = append(next, caller)
			}
		}
	}
	for name := range reached {
		if strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests
}

// pattern returns a pattern of the tests to run under a kernel, or "" if there are none: those for every
// kernel and, if one is set, those for one kernel.
func (m marks) pattern(one bool) string {
	names := m.every
	if one {
		names = slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, m.one))))
	}
	if len(names) == 0 {
		return ""
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
