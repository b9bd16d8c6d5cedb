package branches

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"fulgur/internal/bolt"
	"fulgur/internal/message/usage"
)

// Versions of LLVM whose perf2bolt supports a new format.
const (
	// branchesLLVM is the oldest supported version: B, F and f lines.
	branchesLLVM = 16
	// tracesLLVM adds T lines, and samples without branches.
	tracesLLVM = 22
)

// llvmAuto selects the version of the installed llvm-bolt.
const llvmAuto = "auto"

// llvm is the BOLT that reads a profile.
type llvm struct {
	version int    // branchesLLVM or tracesLLVM
	found   string // the installed version that was detected, "" if the user chose
	dir     string // directory of its programs, "" for PATH
}

// chooseLLVM returns the version for asked: "16", "22", or "auto" for the llvm-bolt
// in PATH, or the newest if there is none.
func chooseLLVM(ctx context.Context, asked string) (llvm, error) {
	program, err := exec.LookPath("llvm-bolt")
	inPath := err == nil
	chosen := llvm{version: tracesLLVM}
	switch asked {
	case "", llvmAuto:
		if inPath {
			major, full, err := llvmVersion(ctx, program)
			if err != nil {
				return llvm{}, err
			}
			chosen.version, chosen.found = formatFor(major), full
		}
	case strconv.Itoa(branchesLLVM):
		chosen.version = branchesLLVM
	case strconv.Itoa(tracesLLVM):
	default:
		return llvm{}, usage.Errorf("%s %s: give %d for LLVM 16 to 21, %d for newer ones, or auto for the llvm-bolt in PATH", usage.LLVM, asked, branchesLLVM, tracesLLVM)
	}
	if !inPath {
		// Debian's perf2bolt-16 and -19 in PATH behave as llvm-bolt.
		dir := fmt.Sprintf("/usr/lib/llvm-%d/bin", chosen.version)
		if _, err := exec.LookPath(filepath.Join(dir, "perf2bolt")); err == nil {
			chosen.dir = dir
		}
	}
	return chosen, nil
}

// formatFor returns the version of the format for perf2bolt of LLVM major.
func formatFor(major int) int {
	if major < tracesLLVM {
		return branchesLLVM
	}
	return tracesLLVM
}

var llvmVersionText = regexp.MustCompile(`LLVM version ((\d+)\.[0-9.]+)`)

// llvmVersion returns the version of the llvm-bolt at path.
func llvmVersion(ctx context.Context, path string) (major int, full string, err error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, "", fmt.Errorf("%s --version: %w; choose the version with %s", path, err, usage.LLVM)
	}
	m := llvmVersionText.FindSubmatch(out)
	if m == nil {
		line, _, _ := bytes.Cut(out, []byte("\n"))
		return 0, "", fmt.Errorf("%s --version prints %q, which is not an LLVM version; choose the version with %s", path, line, usage.LLVM)
	}
	major, err = strconv.Atoi(string(m[2]))
	return major, string(m[1]), err
}

// program returns the path of a BOLT program.
func (l llvm) program(name string) string { return filepath.Join(l.dir, name) }

// errBasicLLVM rejects samples without branches for older LLVM.
func errBasicLLVM() error {
	return usage.Errorf("only perf2bolt of LLVM %d and newer reads samples without branches: use %s %d", tracesLLVM, usage.LLVM, tracesLLVM)
}

// installedLLVM returns the newest LLVM with llvm-bolt and perf2bolt installed that
// can read the format for asked; see [chooseLLVM].
func installedLLVM(ctx context.Context, asked string) (llvm, error) {
	chosen, err := chooseLLVM(ctx, asked)
	if err != nil {
		return llvm{}, err
	}
	const everywhere = "/usr/lib/llvm-*/bin/llvm-bolt" // Debian's
	programs, err := filepath.Glob(everywhere)
	if err != nil {
		return llvm{}, err
	}
	if inPath, err := exec.LookPath("llvm-bolt"); err == nil {
		programs = append(programs, inPath)
	}
	var newest llvm
	major := 0
	for _, program := range programs {
		// Debian's perf2bolt-16 and -19 in PATH behave as llvm-bolt.
		if _, err := exec.LookPath(filepath.Join(filepath.Dir(program), "perf2bolt")); err != nil {
			continue
		}
		m, full, err := llvmVersion(ctx, program)
		if err != nil {
			return llvm{}, err
		}
		reads := m >= branchesLLVM && (asked != strconv.Itoa(tracesLLVM) || m >= tracesLLVM)
		if !reads || m <= major {
			continue
		}
		major, newest = m, llvm{version: chosen.version, dir: filepath.Dir(program)}
		if asked == "" || asked == llvmAuto {
			newest.version, newest.found = formatFor(m), full
		}
	}
	if major == 0 {
		return llvm{}, fmt.Errorf("%s needs llvm-bolt and perf2bolt of LLVM %d or newer, and neither PATH nor %s has them: install them (Debian's package bolt-%d, or a newer one from https://apt.llvm.org), or leave out %s and run llvm-bolt on another machine",
			usage.Optimize, chosen.version, filepath.Dir(everywhere), chosen.version, usage.Optimize)
	}
	return newest, nil
}

// next returns the command lines that optimize b with its profile at path.
func (l llvm) next(b *bolt.Binary, path string, basic bool) [][]string {
	fdata, optimized := filepath.Base(b.Name)+".fdata", filepath.Base(b.Name)+".bolt"
	flags := l.layoutFlags(b.Relocations)
	return [][]string{l.convert(path, fdata, b.Name, basic), l.optimize(b.Name, optimized, fdata, flags)}
}

// convert returns the command line that converts the profile at path to BOLT's own
// format, fdata.
func (l llvm) convert(path, fdata, binary string, basic bool) []string {
	argv := []string{l.program("perf2bolt"), "--pa"}
	if basic {
		argv = append(argv, "--basic-events") // instead of -nl, which is from before LLVM 22
	}
	return append(argv, "-p", path, "-o", fdata, binary)
}

// optimize returns the command line that optimizes binary.
func (l llvm) optimize(binary, optimized, fdata string, flags []string) []string {
	return append([]string{l.program("llvm-bolt"), binary, "-o", optimized, "-data=" + fdata}, flags...)
}

// layoutFlags returns the optimizations that BOLT's documentation recommends.
// Functions can be reordered only with relocations. Of the algorithms for that, LLVM
// 16 lacks the newer one.
func (l llvm) layoutFlags(relocations bool) []string {
	flags := []string{"-reorder-blocks=ext-tsp"}
	switch {
	case !relocations:
	case l.version < tracesLLVM:
		flags = append(flags, "-reorder-functions=hfsort")
	default:
		flags = append(flags, "-reorder-functions=cdsort")
	}
	return append(flags, "-split-functions", "-split-all-cold", "-split-eh", "-dyno-stats")
}
