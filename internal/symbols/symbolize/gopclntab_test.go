package symbolize

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

var (
	// Running Go 1.19 with a newer go command takes GODEBUG=goindex=0.
	toolchains = flag.String("toolchains", "local", "versions of Go, as of GOTOOLCHAIN, to build programs with, separated by commas")
	goEvery    = flag.Int("every", 0, "compare every n-th byte of Go's code; 0 is 97, or 29 in long tests")
)

// goBuild builds the program gooracle with a version of Go and returns its path. The test
// is skipped if that version is not available.
func goBuild(t testing.TB, toolchain string, env []string, args ...string) string {
	t.Helper()
	tool := testenv.Tool(t, "go")
	out := filepath.Join(t.TempDir(), "gooracle")
	cmd := exec.Command(tool, append(append([]string{"build", "-buildvcs=false", "-o", out}, args...), ".")...)
	cmd.Dir = "testdata/gooracle"
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN="+toolchain, "GOFLAGS=", "GO111MODULE=on", "GOWORK=off", "GOPROXY=off")
	cmd.Env = append(cmd.Env, env...)
	msg, err := cmd.CombinedOutput()
	if err != nil && bytes.Contains(msg, []byte("download")) {
		testenv.Unsupported(t, "%s is not at hand: %s", toolchain, msg)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, msg)
	}
	return out
}

// oracleFlags returns the flags that let gooracle call functions of the runtime.
func oracleFlags(toolchain string, ldflags ...string) string {
	minor := 99 // the installed version
	_, _ = fmt.Sscanf(toolchain, "go1.%d", &minor)
	if minor >= 23 {
		ldflags = append(ldflags, "-checklinkname=0")
	}
	return "-ldflags=" + strings.Join(ldflags, " ")
}

// goText returns every goEvery-th address of an ELF file's code.
func goText(t testing.TB, e *ELF) (addrs []uint64) {
	t.Helper()
	every := *goEvery
	switch {
	case every > 0:
	case testenv.IsLong():
		every = 29
	default:
		every = 97
	}
	text := e.File().Section(".text")
	for addr := text.Addr; addr < text.Addr+text.Size; addr += uint64(every) {
		addrs = append(addrs, addr)
	}
	return addrs
}

// hexLines formats addresses for the tools' input.
func hexLines(addrs []uint64) string {
	var b strings.Builder
	for _, addr := range addrs {
		fmt.Fprintf(&b, "%#x\n", addr)
	}
	return b.String()
}

// TestGoRuntime compares inline chains with the runtime's own: functions, files, lines
// and first lines.
func TestGoRuntime(t *testing.T) {
	for _, toolchain := range strings.Split(*toolchains, ",") {
		for _, tt := range []struct {
			name  string
			cgo   bool
			strip bool
			args  []string
		}{
			{"static", false, false, []string{oracleFlags(toolchain)}},
			{"stripped", false, true, []string{oracleFlags(toolchain, "-s", "-w"), "-trimpath"}},
			{"pie", false, true, []string{oracleFlags(toolchain), "-buildmode=pie"}},
			{"cgo", true, true, []string{oracleFlags(toolchain)}},
			{"cgo pie", true, true, []string{oracleFlags(toolchain, "-linkmode=external"), "-buildmode=pie"}},
		} {
			t.Run(toolchain+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				cgo := "0"
				if tt.cgo {
					testenv.Tool(t, "gcc")
					cgo = "1"
				}
				path := goBuild(t, toolchain, []string{"CGO_ENABLED=" + cgo}, tt.args...)
				if tt.strip {
					run(t, "", "strip", path)
				}
				compareGoRuntime(t, path)
			})
		}
	}
}

// compareGoRuntime runs the program gooracle at path and compares with its output.
func compareGoRuntime(t *testing.T, path string) {
	t.Helper()
	e := openFile(t, path, Options{})
	addrs := goText(t, e)
	frames := make([][]Frame, len(addrs))
	if err := e.lookupGo(addrs, frames); err != nil {
		t.Fatal(err)
	}
	// The runtime looks up the byte after an address. At the last byte of a function, it
	// finds the next function.
	next := make([]uint64, len(addrs))
	for i, addr := range addrs {
		next[i] = addr + 1
	}
	following := make([][]Frame, len(next))
	if err := e.lookupGo(next, following); err != nil {
		t.Fatal(err)
	}
	args := []string{}
	if e.File().Type() == elf.ET_DYN {
		i := slices.IndexFunc(e.File().Segments(), func(s elffile.Segment) bool { return s.Type == elf.PT_LOAD })
		args = append(args, strconv.FormatUint(e.File().Segments()[i].Addr, 16))
	}
	lines := strings.Split(run(t, hexLines(addrs), path, args...), "\n")
	if len(lines) != len(addrs)+1 {
		t.Fatalf("got %d lines, want %d", len(lines), len(addrs)+1)
	}
	first := frames[slices.IndexFunc(frames, func(f []Frame) bool { return f != nil })][0].Name
	compared, inlined, wrong, lastBytes := 0, 0, 0, 0
	for i, addr := range addrs {
		want := parseOracle(t, lines[i])
		if len(following[i]) > 0 && following[i][0].Offset == 0 {
			lastBytes++
			continue
		}
		got := sansOffsets(frames[i])
		if len(got) > 0 && strings.HasPrefix(got[0].Name, "go:textfips") {
			continue // a marker, which the runtime does not look up
		}
		if len(want) > 0 && want[0].Name == "" {
			// The linker puts the first function's name at offset 0 of the name table.
			// The runtime treats that as no name.
			want[0].Name = first
		}
		if len(want) > 0 {
			compared++
		}
		if len(want) > 1 {
			inlined++
		}
		if !slices.Equal(got, want) && !slices.Equal(sansWrappers(got), want) {
			if wrong++; wrong <= 5 {
				t.Errorf("%#x:\n got %+v\nwant %+v", addr, got, want)
			}
		}
	}
	t.Logf("%d addresses compared, %d of them in inlined functions, %d wrong; %d last bytes skipped", compared, inlined, wrong, lastBytes)
	if compared < 1000 || inlined < 100 {
		t.Errorf("got only %d addresses, %d of them in inlined functions", compared, inlined)
	}
}

// TestGoAddr2line compares functions and lines with go tool addr2line, for programs that
// need not run on this machine. The tool prints the outermost function with the line of
// the innermost.
func TestGoAddr2line(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			path := goBuild(t, "local", []string{"CGO_ENABLED=0", "GOARCH=" + arch}, oracleFlags("local"))
			e := openFile(t, path, Options{})
			addrs := goText(t, e)
			frames := make([][]Frame, len(addrs))
			if err := e.lookupGo(addrs, frames); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(run(t, hexLines(addrs), "go", "tool", "addr2line", path), "\n")
			if len(lines) != 2*len(addrs)+1 {
				t.Fatalf("got %d lines, want %d", len(lines), 2*len(addrs)+1)
			}
			compared, wrong := 0, 0
			for i, addr := range addrs {
				want := lines[2*i] + " " + lines[2*i+1]
				got := "? ?:0"
				if fs := frames[i]; len(fs) > 0 {
					file, line := fs[0].File, fs[0].Line
					if line == 0 {
						file = "?"
					}
					got = fmt.Sprintf("%s %s:%d", fs[len(fs)-1].SystemName, file, line)
				}
				if strings.HasSuffix(got, " ?:0") && (want == "? ?:0" || strings.HasSuffix(want, " :-1") || strings.HasPrefix(want, "go:textfips")) {
					continue // padding without a line, or a marker
				}
				if compared++; got != want {
					if wrong++; wrong <= 5 {
						t.Errorf("%#x: got %s, want %s", addr, got, want)
					}
				}
			}
			t.Logf("%d addresses compared, %d wrong", compared, wrong)
			if compared < 1000 {
				t.Errorf("got only %d addresses", compared)
			}
		})
	}
}

// parseOracle returns the frames in an output line of gooracle. They have no offsets and
// no linker names.
func parseOracle(t *testing.T, line string) (frames []Frame) {
	t.Helper()
	fields := strings.Split(line, "\t")[1:]
	for len(fields) >= 4 {
		f := Frame{Name: fields[0], File: fields[1], Inlined: len(fields) > 4}
		if f.Name == "" && f.File == "" {
			return nil // code that is not Go's
		}
		if f.File == "?" {
			f.File = ""
		}
		var err error
		if f.Line, err = strconv.Atoi(fields[2]); err != nil {
			t.Fatal(err)
		}
		if f.StartLine, err = strconv.Atoi(fields[3]); err != nil {
			t.Fatal(err)
		}
		frames, fields = append(frames, f), fields[4:]
	}
	return frames
}

// sansOffsets returns frames without the fields that gooracle does not print.
func sansOffsets(frames []Frame) []Frame {
	frames = slices.Clone(frames)
	for i := range frames {
		frames[i].Offset, frames[i].SystemName = 0, ""
	}
	return frames
}

// goWrapper matches functions that the compiler generates to call others (internal/abi:
// FuncIDWrapper), and other functions that the runtime treats like them.
var goWrapper = regexp.MustCompile(`\.deferwrap\d+$|^reflect\.callMethod$|^reflect\.callReflect$|^runtime\.(runOpenDeferFrame|deferCallSave|deferreturn)$`)

// sansWrappers removes wrappers, as the runtime does when it expands inlined calls. A
// profile keeps them because they use CPU time.
func sansWrappers(frames []Frame) []Frame {
	frames = slices.DeleteFunc(slices.Clone(frames), func(f Frame) bool {
		return f.File == "<autogenerated>" || goWrapper.MatchString(f.Name)
	})
	if len(frames) > 0 {
		frames[len(frames)-1].Inlined = false
	}
	return frames
}
