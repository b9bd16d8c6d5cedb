package internal

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readAreas returns the areas in the order of the package comment.
func readAreas(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var areas []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(\w+) `).FindAllSubmatch(doc, -1) {
		areas = append(areas, string(m[1]))
	}
	return areas
}

// TestAreas fails on an import against the order of the areas, and on a folder that is
// not listed.
func TestAreas(t *testing.T) {
	areas := readAreas(t)
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, e.Name())
		}
	}
	listed := slices.Sorted(slices.Values(areas))
	if !slices.Equal(folders, listed) {
		t.Fatalf("got folders %v, want the listed ones %v", folders, listed)
	}
	const prefix = "fulgur/internal/"
	imports := 0
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.Contains(path, "/testdata/") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		own, _, _ := strings.Cut(filepath.ToSlash(path), "/")
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if strings.HasPrefix(name, "fulgur/cmd/") {
				t.Errorf("%s: got an import of %s", path, name)
			}
			rest, ok := strings.CutPrefix(name, prefix)
			if !ok {
				continue
			}
			imports++
			area, _, _ := strings.Cut(rest, "/")
			// Tests may import later areas to check against them.
			if !strings.HasSuffix(path, "_test.go") && slices.Index(areas, area) > slices.Index(areas, own) {
				t.Errorf("%s: got an import of %s, which is in a later area than %s", path, name, own)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if imports < 500 {
		t.Errorf("got only %d imports", imports)
	}
}
