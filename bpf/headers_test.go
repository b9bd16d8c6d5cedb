package bpf_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// headers returns the text of each header.
func headers(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.h")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 30 {
		t.Fatalf("got %d headers", len(names))
	}
	texts := make(map[string]string)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

// Each header includes what it needs: it compiles alone. -Wundefined-internal would name the functions
// that a header leaves to the family.
func TestHeadersAlone(t *testing.T) {
	testenv.AnyKernel(t)
	clang := testenv.Tool(t, "clang-19")
	testenv.File(t, "/usr/include/bpf/bpf_helpers.h")
	for name, text := range headers(t) {
		for _, arch := range []string{"x86", "arm64"} {
			if arch == "arm64" && !strings.Contains(text, "__TARGET_ARCH_") {
				continue // the same as for x86, except for what it includes
			}
			t.Run(name+"/"+arch, func(t *testing.T) {
				out, err := exec.Command(clang, "-fsyntax-only", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_"+arch,
					"-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-function",
					"-Wno-undefined-internal", "-x", "c", name).CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// No header includes itself through others: then what it contains would depend on which of them
// is included first.
func TestHeaderCycles(t *testing.T) {
	testenv.AnyKernel(t)
	include := regexp.MustCompile(`(?m)^\s*#\s*include "([^"]+)"`)
	graph := make(map[string][]string)
	for name, text := range headers(t) {
		for _, m := range include.FindAllStringSubmatch(text, -1) {
			graph[name] = append(graph[name], m[1])
		}
	}
	if cycle := cycleIn(graph); cycle != nil {
		t.Errorf("got a cycle: %s", strings.Join(cycle, " includes "))
	}
	graph["kernel.h"] = append(graph["kernel.h"], "unwind.h")
	if cycle := cycleIn(graph); len(cycle) < 3 || cycle[0] != cycle[len(cycle)-1] {
		t.Errorf("got %v, want a cycle through kernel.h and unwind.h", cycle)
	}
}

// cycleIn returns a path in a graph that ends where it starts, or nil if there is none.
func cycleIn(graph map[string][]string) []string {
	done := make(map[string]bool)
	var path []string
	var visit func(node string) []string
	visit = func(node string) []string {
		if i := slices.Index(path, node); i >= 0 {
			return append(slices.Clone(path[i:]), node)
		}
		if done[node] {
			return nil
		}
		path = append(path, node)
		for _, next := range graph[node] {
			if cycle := visit(next); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		done[node] = true
		return nil
	}
	for node := range graph {
		if cycle := visit(node); cycle != nil {
			return cycle
		}
	}
	return nil
}

// No header depends on what was included before it. A macro that it tests is the compiler's, or its own:
// it gives the macro a default, so that a later definition is an error.
func TestHeaderOrder(t *testing.T) {
	testenv.AnyKernel(t)
	test := regexp.MustCompile(`(?m)^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)`)
	word := regexp.MustCompile(`\b[A-Za-z_]\w*\b`)
	for name, text := range headers(t) {
		for _, line := range test.FindAllStringSubmatch(text, -1) {
			for _, macro := range word.FindAllString(line[1], -1) {
				own := regexp.MustCompile(`(?m)^\s*#\s*define ` + macro + `\b`).MatchString(text)
				if macro != "defined" && !strings.HasPrefix(macro, "__") && !own {
					t.Errorf("%s tests %s, which it does not define", name, macro)
				}
			}
		}
	}
}
