package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// definitions reports whether a source file defines a name. Methods are "Type.method".
type definitions func(name string) bool

// readDefinitions returns the definitions of a source file in Go, C or JavaScript.
func readDefinitions(t *testing.T, path string) definitions {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return func(string) bool { return true } // reported
	}
	has := func(pattern string) bool { return regexp.MustCompile(`(?m)` + pattern).Match(text) }
	switch filepath.Ext(path) {
	case ".go":
		return goDefinitions(t, path)
	case ".js":
		return func(name string) bool {
			if class, method, ok := strings.Cut(name, "."); ok {
				return has(`(?s)^class ` + class + ` {\n.*?^  (async )?` + method + `\([^\n]*\) {\n.*?^}`)
			}
			return has(`^(async )?function ` + name + `\(`)
		}
	}
	// In C, only bodies and comments are indented.
	return func(name string) bool { return has(`^\w(.*\W)?` + name + `\(`) }
}

// goDefinitions returns the definitions at the top level of a file in Go.
func goDefinitions(t *testing.T, path string) definitions {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if pointer, ok := of.(*ast.StarExpr); ok {
					of = pointer.X
				}
				if receiver, ok := of.(*ast.Ident); ok {
					name = receiver.Name + "." + name
				}
			}
			defined[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					defined[s.Name.Name] = true
				}
			}
		}
	}
	return func(name string) bool { return defined[name] }
}

// Each step in docs/one-stack.md names a file, and what the file defines.
func TestOneStack(t *testing.T) {
	const page = "../docs/one-stack.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile(`(?m)^- \[[^]]*\]\(([^)]*)\):((?:.|\n  )*)`).FindAllSubmatch(text, -1)
	quoted := regexp.MustCompile("`([A-Za-z_][\\w.]*)`")
	if listed := strings.Count(string(text), "\n- "); len(steps) != listed || listed < 20 {
		t.Errorf("got %d steps that begin with a file, of %d", len(steps), listed)
	}
	for _, step := range steps {
		path := string(step[1])
		names := quoted.FindAllSubmatch(step[2], -1)
		if len(names) == 0 {
			t.Errorf("%s: no name in %q", path, step[0])
		}
		defines := readDefinitions(t, filepath.Join(filepath.Dir(page), path))
		for _, name := range names {
			if !defines(string(name[1])) {
				t.Errorf("%s does not define %s any more; correct %s", path, name[1], page)
			}
		}
	}
}

// Links in the documents to files of the source tree lead somewhere.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, page := range append(pages, docs...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:\s]+)[^):]*\)`).FindAllSubmatch(text, -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(m[1]))); err != nil {
				t.Errorf("%s: a link leads nowhere: %v", page, err)
			}
		}
	}
	if links < 100 {
		t.Errorf("got only %d links", links)
	}
}

// Files and folders that the documents for developers name exist.
func TestPaths(t *testing.T) {
	pages, err := filepath.Glob("../docs/adding-*.md")
	if err != nil {
		t.Fatal(err)
	}
	paths := 0
	for _, page := range append(pages, "../CONTRIBUTING.md", "../docs/how-it-works.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((?:bpf|cmd|docs|internal|packaging|test)/[a-z0-9_./-]*)`").FindAllSubmatch(text, -1) {
			paths++
			if _, err := os.Stat(filepath.Join("..", string(m[1]))); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if paths < 30 {
		t.Errorf("got only %d paths", paths)
	}
}
