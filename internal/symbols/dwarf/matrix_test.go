package dwarf

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fulgur/internal/testenv"
)

// build describes one way to build the program in testdata.
type build struct {
	name  string
	cc    string // gcc or clang-19
	flags string
	link  string // more flags for linking
	after func(t *testing.T, dir string)
}

var builds = []build{
	{name: "gcc 4 O0", cc: "gcc", flags: "-gdwarf-4 -O0"},
	{name: "gcc 4 O2", cc: "gcc", flags: "-gdwarf-4 -O2"},
	{name: "gcc 5 O1", cc: "gcc", flags: "-gdwarf-5 -O1"},
	{name: "gcc 5 O2", cc: "gcc", flags: "-gdwarf-5 -O2"},
	{name: "gcc 5 O3", cc: "gcc", flags: "-gdwarf-5 -O3"},
	{name: "gcc 3 O2", cc: "gcc", flags: "-gdwarf-3 -O2"},
	{name: "gcc dwarf64", cc: "gcc", flags: "-gdwarf-5 -gdwarf64 -O2"},
	{name: "gcc types", cc: "gcc", flags: "-gdwarf-4 -O2 -fdebug-types-section"},
	{name: "gcc split 4", cc: "gcc", flags: "-gdwarf-4 -O2 -gsplit-dwarf"},
	{name: "gcc split 5", cc: "gcc", flags: "-gdwarf-5 -O2 -gsplit-dwarf"},
	{name: "gcc dwp 4", cc: "gcc", flags: "-gdwarf-4 -O2 -gsplit-dwarf", after: pack("dwp")},
	{name: "gcc lto", cc: "gcc", flags: "-g -O2 -flto"},
	{name: "gcc gc-sections", cc: "gcc", flags: "-g -O2 -ffunction-sections", link: "-Wl,--gc-sections"},
	{name: "gcc dwz", cc: "gcc", flags: "-gdwarf-5 -O2", after: dwz},
	{name: "clang 4 O0", cc: "clang-19", flags: "-gdwarf-4 -O0"},
	{name: "clang 4 O2", cc: "clang-19", flags: "-gdwarf-4 -O2"},
	{name: "clang 5 O1", cc: "clang-19", flags: "-gdwarf-5 -O1"},
	{name: "clang 5 O2", cc: "clang-19", flags: "-gdwarf-5 -O2"},
	{name: "clang 5 O3", cc: "clang-19", flags: "-gdwarf-5 -O3"},
	{name: "clang dwarf64", cc: "clang-19", flags: "-gdwarf-5 -gdwarf64 -O2"},
	{name: "clang types", cc: "clang-19", flags: "-gdwarf-5 -O2 -fdebug-types-section"},
	{name: "clang split 4", cc: "clang-19", flags: "-gdwarf-4 -O2 -gsplit-dwarf"},
	{name: "clang split 5", cc: "clang-19", flags: "-gdwarf-5 -O2 -gsplit-dwarf"},
	{name: "clang dwp 5", cc: "clang-19", flags: "-gdwarf-5 -O2 -gsplit-dwarf", after: pack("llvm-dwp-19")},
	{name: "clang gc-sections", cc: "clang-19", flags: "-g -O2 -ffunction-sections", link: "-Wl,--gc-sections"},
	{name: "clang lto", cc: "clang-19", flags: "-g -O2 -flto", link: "-fuse-ld=lld-19"},
	{name: "clang gc lld", cc: "clang-19", flags: "-gdwarf-4 -O2 -ffunction-sections", link: "-fuse-ld=lld-19 -Wl,--gc-sections"},
}

// pack packs the .dwo files into a .dwp file and removes them.
func pack(tool string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		command(t, dir, testenv.Tool(t, tool), "-e", "program", "-o", "program.dwp")
		dwos, _ := filepath.Glob(filepath.Join(dir, "*.dwo"))
		for _, dwo := range dwos {
			if err := os.Remove(dwo); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// dwz moves shared parts of units to partial units.
func dwz(t *testing.T, dir string) {
	command(t, dir, testenv.Tool(t, "dwz"), "program")
}

func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	// llvm-dwp 19 loops forever on some output of GCC.
	ctx, cancel := context.WithTimeout(t.Context(), testenv.TimeLimit())
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// compile builds the program in testdata and returns its path.
func compile(t *testing.T, b build) string {
	t.Helper()
	cc := testenv.Tool(t, b.cc)
	cxx := testenv.Tool(t, map[string]string{"gcc": "g++", "clang-19": "clang++-19"}[b.cc])
	if strings.Contains(b.link, "lld-19") {
		testenv.Tool(t, "ld.lld-19")
		b.link = strings.ReplaceAll(b.link, "lld-19", "lld")
	}
	src, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	flags := strings.Fields(b.flags)
	var objects []string
	for _, name := range []string{"shapes.cc", "leaf.c", "asm.S"} {
		tool := cc
		if strings.HasSuffix(name, ".cc") {
			tool = cxx
		}
		object := strings.TrimSuffix(name, filepath.Ext(name)) + ".o"
		args := append([]string{"-c", "-o", object, filepath.Join(src, name)}, flags...)
		if strings.HasSuffix(name, ".S") {
			args = []string{"-c", "-g", "-o", object, filepath.Join(src, name)}
		}
		command(t, dir, tool, args...)
		objects = append(objects, object)
	}
	args := append([]string{"-o", "program"}, flags...)
	args = append(append(args, strings.Fields(b.link)...), objects...)
	command(t, dir, cxx, args...)
	if b.after != nil {
		b.after(t, dir)
	}
	return filepath.Join(dir, "program")
}

// openSplit returns a function that finds split units next to a program or in its .dwp
// file.
func openSplit(t *testing.T, program string) func(SplitUnit) (*Sections, error) {
	packed := sync.OnceValue(func() *Sections { return openSections(t, program+".dwp", ".dwo") })
	return func(s SplitUnit) (*Sections, error) {
		if _, err := os.Stat(program + ".dwp"); err == nil {
			return packed(), nil
		}
		path := s.DwoName
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.CompDir, path)
		}
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
		return openSections(t, path, ".dwo"), nil
	}
}

// TestMatrix compares with llvm-symbolizer at every address of small programs.
func TestMatrix(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			program := compile(t, b)
			d, err := Open(openSections(t, program, ""), Options{Split: openSplit(t, program)})
			if err != nil {
				t.Error(err)
			}
			addrs := textAddresses(t, program, 1)
			if n := compareLLVM(t, program, d, addrs); n > 0 {
				t.Errorf("%d of %d addresses differ", n, len(addrs))
			}
		})
	}
}
