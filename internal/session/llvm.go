package session

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"fulgur/internal/bolt"
)

// Versions of LLVM whose perf2bolt reads something that older ones do not.
const (
	// branchesLLVM is the oldest that is written for: B, F and f lines.
	branchesLLVM = 16
	// tracesLLVM reads T lines and samples without branches, too.
	tracesLLVM = 22
)

// llvm is the BOLT that a profile is for.
type llvm struct {
	version int    // branchesLLVM or tracesLLVM
	found   string // the version that made the choice, "" if it was asked for
	dir     string // where its programs are, "" if PATH has them
}

// chooseLLVM returns what asked stands for: "16", "22", or "auto" for the
// llvm-bolt in PATH, and the newest if there is none.
func chooseLLVM(ctx context.Context, asked string) (llvm, error) {
	program, err := exec.LookPath("llvm-bolt")
	inPath := err == nil
	chosen := llvm{version: tracesLLVM}
	switch asked {
	case "", "auto":
		if inPath {
			major, full, err := llvmVersion(ctx, program)
			if err != nil {
				return llvm{}, err
			}
			if chosen.found = full; major < tracesLLVM {
				chosen.version = branchesLLVM
			}
		}
	case strconv.Itoa(branchesLLVM):
		chosen.version = branchesLLVM
	case strconv.Itoa(tracesLLVM):
	default:
		return llvm{}, usagef("--llvm %s: give %d for LLVM 16 to 21, %d for newer ones, or auto for the llvm-bolt in PATH", asked, branchesLLVM, tracesLLVM)
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

var llvmVersionText = regexp.MustCompile(`LLVM version ((\d+)\.[0-9.]+)`)

// llvmVersion asks the llvm-bolt at path for its version.
func llvmVersion(ctx context.Context, path string) (major int, full string, err error) {
	const remedy = "say with --llvm which version the profile is for"
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, "", fmt.Errorf("%s --version: %w; %s", path, err, remedy)
	}
	m := llvmVersionText.FindSubmatch(out)
	if m == nil {
		line, _, _ := bytes.Cut(out, []byte("\n"))
		return 0, "", fmt.Errorf("%s --version says %q, which is no version of LLVM; %s", path, line, remedy)
	}
	major, err = strconv.Atoi(string(m[2]))
	return major, string(m[1]), err
}

// program returns how a program of BOLT is called.
func (l llvm) program(name string) string { return filepath.Join(l.dir, name) }

// next returns the command lines that optimise b by its profile at path: those
// of BOLT's documentation.
func (l llvm) next(b *bolt.Binary, path string, basic bool) [][]string {
	fdata, optimised := filepath.Base(b.Name)+".fdata", filepath.Base(b.Name)+".bolt"
	convert := []string{l.program("perf2bolt"), "--pa"}
	if basic {
		convert = append(convert, "--basic-events")
	}
	convert = append(convert, "-p", path, "-o", fdata, b.Name)
	optimise := []string{l.program("llvm-bolt"), b.Name, "-o", optimised, "-data=" + fdata, "-reorder-blocks=ext-tsp"}
	if b.Relocations {
		order := "cdsort"
		if l.version < tracesLLVM {
			order = "hfsort" // LLVM 16 does not have the newer one
		}
		optimise = append(optimise, "-reorder-functions="+order)
	}
	return [][]string{convert, append(optimise, "-split-functions", "-split-all-cold", "-split-eh", "-dyno-stats")}
}
