package testenv

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ProgramsFile lists what a package's tests compile, one [CompileRequest] per line. The
// rig compiles it in advance, because its VMs have no compilers.
const ProgramsFile = "testdata/programs.txt"

// ProgramsDir holds the precompiled programs in the rig's VMs, by [CompileRequest.Key].
const ProgramsDir = "/programs"

// CompileRequest is a program or library to compile in the directory of a package.
type CompileRequest struct {
	Name     string // of the output file
	Compiler string // gcc or g++
	// Args are the compiler's arguments, without the output file. Arguments that end in .c or
	// .cc are paths of sources.
	Args []string
}

// String returns the request as a line of [ProgramsFile].
func (r CompileRequest) String() string {
	return strings.Join(append([]string{r.Name, r.Compiler}, r.Args...), " ")
}

// ParseCompileRequests parses a [ProgramsFile].
func ParseCompileRequests(text string) ([]CompileRequest, error) {
	var list []CompileRequest
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case len(f) < 3:
			return nil, fmt.Errorf("%q is not a name, a compiler and its arguments", line)
		default:
			list = append(list, CompileRequest{f[0], f[1], f[2:]})
		}
	}
	return list, nil
}

// Sources returns the paths of the sources.
func (r CompileRequest) Sources() (paths []string) {
	for _, arg := range r.Args {
		if ext := filepath.Ext(arg); ext == ".c" || ext == ".cc" {
			paths = append(paths, arg)
		}
	}
	return paths
}

// Key identifies the result of the request and its sources, which are in the package's
// directory dir.
func (r CompileRequest) Key(dir string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, r)
	for _, source := range r.Sources() {
		text, err := os.ReadFile(filepath.Join(dir, source))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// Compile compiles a program or library with the given name in a temporary directory, and
// returns its path. In the rig's VMs it uses the precompiled one. If the package has a
// [ProgramsFile], it must list the request.
func Compile(t testing.TB, name, compiler string, args ...string) string {
	t.Helper()
	r := CompileRequest{name, compiler, args}
	out := filepath.Join(t.TempDir(), name)
	if InVM() {
		if err := r.copy(out); errors.Is(err, fs.ErrNotExist) {
			Skip(t, "needs %s, or this line in %s: %s", compiler, ProgramsFile, r)
		} else if err != nil {
			t.Fatal(err)
		}
		return out
	}
	tool := Tool(t, compiler)
	if err := r.listed(); err != nil {
		t.Error(err)
	}
	// Each test has its own file, which it may change.
	key, keyErr := r.Key(".")
	if program, ok := compiled.Load(key); ok && keyErr == nil {
		if err := WriteProgram(out, program.([]byte)); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if text, err := exec.Command(tool, append([]string{"-o", out}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", r, err, text)
	}
	if keyErr == nil {
		program, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		compiled.Store(key, program)
	}
	return out
}

// compiled holds the programs that this process has compiled, by [CompileRequest.Key].
var compiled sync.Map

// copy copies the precompiled program to the file out.
func (r CompileRequest) copy(out string) error {
	key, err := r.Key(".")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(ProgramsDir, key))
	if err != nil {
		return err
	}
	return WriteProgram(out, program)
}

// WriteProgram writes an executable file. Until it is closed, this process does not fork: the
// kernel refuses to execute a file that any process, such as another test's child before its own
// exec, has open for writing (ETXTBSY).
func WriteProgram(path string, program []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, program, 0o755)
}

// listed returns an error if the package's ProgramsFile lacks the request.
func (r CompileRequest) listed() error {
	text, err := os.ReadFile(ProgramsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := ParseCompileRequests(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", ProgramsFile, err)
	}
	if !slices.ContainsFunc(list, func(l CompileRequest) bool { return l.String() == r.String() }) {
		return fmt.Errorf("%s lacks this line, without which the test is skipped in the rig's machines: %s", ProgramsFile, r)
	}
	return nil
}
