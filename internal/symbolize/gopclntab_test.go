package symbolize

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const goSource = `package main

import ("fmt"; "os")

//go:noinline
func work[T any](v T) string { return fmt.Sprint(v) }

type box struct{ n int }

//go:noinline
func (b *box) size() int { return b.n + len(work(b.n)) }

func main() { fmt.Println((&box{len(os.Args)}).size()) }
`

// cgoSource makes the external linker place C code before Go's.
const cgoSource = `package main

// #include <stdlib.h>
// static int twice(int n) { return abs(n) * 2; }
import "C"

import "os"

func main() { os.Exit(int(C.twice(C.int(len(os.Args) - 1)))) }
`

// buildGo builds a Go program and returns its path, and that of the same
// program without symbol tables.
func buildGo(t testing.TB, source string, cgo bool, args ...string) (full, stripped string) {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs go: ", err)
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "main.go")
	if err := os.WriteFile(in, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	full, stripped = filepath.Join(dir, "full"), filepath.Join(dir, "stripped")
	cmd := exec.Command(tool, append(append([]string{"build", "-o", full}, args...), in)...)
	cmd.Env = append(os.Environ(), "GO111MODULE=off", "GOFLAGS=", "CGO_ENABLED="+map[bool]string{false: "0", true: "1"}[cgo])
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, msg)
	}
	run(t, "", "strip", "-o", stripped, full)
	return full, stripped
}

// goFunctions returns the functions that go tool nm lists, but for those whose
// names the linker writes otherwise than the runtime's table: generic ones, and
// C's. The assembler's ABI, which only the linker shows, is left out.
func goFunctions(t *testing.T, path string) map[uint64]string {
	t.Helper()
	functions := map[uint64]string{}
	for line := range strings.Lines(run(t, "", "go", "tool", "nm", "-type", path)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "T" && f[1] != "t" {
			continue
		}
		name := strings.TrimSuffix(strings.Join(f[2:], " "), ".abi0")
		if strings.Contains(name, "[") || !strings.HasPrefix(name, "main.") && !strings.HasPrefix(name, "runtime.") && !strings.HasPrefix(name, "fmt.") {
			continue
		}
		addr, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		functions[addr] = name
	}
	delete(functions, 0)
	return functions
}

func TestGo(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		cgo          bool
		args         []string
	}{
		{"static", goSource, false, nil},
		{"pie", goSource, false, []string{"-buildmode=pie"}},
		{"cgo", cgoSource, true, nil},
		{"cgo pie", cgoSource, true, []string{"-buildmode=pie"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.cgo {
				if _, err := exec.LookPath("gcc"); err != nil {
					t.Skip("needs gcc: ", err)
				}
			}
			full, stripped := buildGo(t, tt.source, tt.cgo, tt.args...)
			for _, path := range []string{full, stripped} {
				e := openFile(t, path, Options{})
				functions := goFunctions(t, full)
				addrs := slices.Sorted(maps.Keys(functions))
				frames, err := e.LookupBatch(addrs)
				if err != nil {
					t.Fatal(err)
				}
				count := 0
				for i, addr := range addrs {
					switch name := functions[addr]; {
					case name == "runtime.text" || name == "runtime.etext":
						// These mark places, they are no functions.
					case len(frames[i]) != 1 || frames[i][0].Name != name || frames[i][0].Offset != 0:
						t.Errorf("%#x: %+v, want %s", addr, frames[i], name)
					default:
						count++
					}
				}
				t.Logf("%s: %d functions", filepath.Base(path), count)
				if count < 100 {
					t.Errorf("only %d functions compared", count)
				}
			}
		})
	}
}
