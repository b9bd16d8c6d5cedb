package unwindtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// Program is a program to test with. It runs until it is killed.
type Program struct {
	Name string
	// Often is set if the program is part of every test run, and not only of runs with
	// many samples. Its tools are then required.
	Often bool
	// OnEveryKernel is set if the program is also part of test runs in the rig's VMs.
	OnEveryKernel bool
	// Fits is set if a snapshot has room for each stack.
	Fits bool
	// Guessed is set if the program's own code has no unwind information: debuggers guess there.
	Guessed bool
	// tool builds the program from source with flags. Without source, it is the program
	// itself.
	tool, source string
	flags        []string
	args         []string
	// built is the name of a prebuilt program, for machines without the tool.
	built string
}

// signed and bare are arm64 programs that are built for the VM rig.
const signed, bare = "unwind-signed", "unwind-bare"

// Programs are the programs to test with.
var Programs = []Program{
	{Name: "C -O2", Often: true, OnEveryKernel: true, tool: "gcc", source: "frames.c", flags: []string{"-O2"}, built: "unwind-frames"},
	{Name: "C -O0", tool: "gcc", source: "frames.c", flags: []string{"-O0"}},
	{Name: "C -O3 -fomit-frame-pointer", Often: true, tool: "gcc", source: "frames.c", flags: []string{"-O3", "-fomit-frame-pointer", "-march=haswell"}},
	{Name: "C clang", tool: "clang-19", source: "frames.c", flags: []string{"-O2"}},
	{Name: "C static", tool: "gcc", source: "frames.c", flags: []string{"-O2", "-static"}},
	{Name: "C lazy binding", tool: "gcc", source: "frames.c", flags: []string{"-O2", "-Wl,-z,lazy"}, built: "unwind-lazy"},
	{Name: "C signed return addresses", tool: signed},
	{Name: "C without tables", tool: bare},
	{Name: "C .debug_frame", Often: true, tool: "gcc", source: "frames.c", flags: []string{"-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}},
	{Name: "C large frames", Often: true, OnEveryKernel: true, Fits: true, tool: "gcc", source: "large.c", flags: []string{"-O2", "-fomit-frame-pointer"}},
	{Name: "C++ exceptions", Often: true, tool: "g++", source: "exceptions.cc", flags: []string{"-O2", "-pthread"}},
	{Name: "signals", Often: true, OnEveryKernel: true, tool: "gcc", source: "signals.c", flags: []string{"-O2"}, built: "unwind-signals"},
	{Name: "signals on an alternate stack", tool: "gcc", source: "signals.c", flags: []string{"-O2"}, args: []string{"a"}},
	{Name: "registers that calls change", Often: true, tool: "gcc", source: "registers.c", flags: []string{"-O2"}},
	{Name: "Rust", tool: "rustc", source: "load.rs", flags: []string{"-O"}},
	{Name: "Go", Often: true, tool: "go", source: "golang"},
	{Name: "Go with cgo", tool: "go", source: "cgo"},
	{Name: "busybox", Often: true, OnEveryKernel: true, Guessed: true, tool: "busybox", args: []string{"sha512sum", "/dev/zero"}},
	{Name: "busybox sh", Guessed: true, tool: "busybox", args: []string{"sh", "-c", "while :; do x=$((x+1)); done"}},
	{Name: "python3", tool: "/usr/bin/python3", args: []string{source("load.py")}},
	{Name: "perl", tool: "perl", args: []string{"-e",
		`sub f { $_[0] ? f($_[0]-1) : join ",", sort map { sprintf "%x", $_ } 1..50 } f(20) while 1`}},
	{Name: "node", tool: "node", args: []string{"--interpreted-frames-native-stack", source("load.js")}},
}

// Selected returns the programs for this test run: all of them for a run with many samples.
func Selected(many bool) (selected []Program) {
	for _, p := range Programs {
		if many || testenv.IsLong() && p.Often || p.Often && (p.OnEveryKernel || !testenv.InVM()) {
			selected = append(selected, p)
		}
	}
	return selected
}

// FramePointers is a program that keeps frame pointers.
var FramePointers = Program{
	Name: "C -fno-omit-frame-pointer", Often: true, tool: "gcc", source: "frames.c",
	flags: []string{"-O2", "-fno-omit-frame-pointer"},
}

// folder returns a directory of this module, given relative to its root.
func folder(names ...string) string {
	if testenv.InVM() {
		return filepath.Join(append([]string{"/src"}, names...)...)
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "..", "..", ".."}, names...)...)
}

// source returns the path of a program's source.
func source(name string) string { return folder("internal", "unwind", "testdata", name) }

// relative returns a path relative to the test's directory, which is the same in the
// rig's VMs.
func relative(t *testing.T, path string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.Rel(here, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Command builds the program if necessary and returns its command line. It skips the test
// if the tools are missing.
func (p *Program) Command(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath(p.tool); err != nil {
		if built, err := exec.LookPath(p.built); err == nil {
			return append([]string{built}, p.args...)
		}
		if p.tool == signed || p.tool == bare {
			testenv.Unsupported(t, "the rig has the program, for arm64")
		}
	}
	if p.tool == "gcc" || p.tool == "g++" {
		return append([]string{testenv.Compile(t, "program", p.tool, append([]string{relative(t, source(p.source))}, p.flags...)...)}, p.args...)
	}
	tool := testenv.Tool(t, p.tool)
	if p.source == "" {
		return append([]string{tool}, p.args...)
	}
	out := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-o", out, source(p.source)}, p.flags...)
	if p.tool == "go" {
		args = append(append([]string{"build", "-o", out}, p.flags...), source(p.source))
	}
	build := exec.Command(tool, args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return append([]string{out}, p.args...)
}

// Build returns the path of a Go program that is built from a folder in testdata with flags.
func Build(t *testing.T, folder string, flags ...string) string {
	t.Helper()
	return (&Program{tool: "go", source: folder, flags: flags}).Command(t)[0]
}

// Start starts a program that is killed at the end of the test, and returns its process
// ID.
func Start(t *testing.T, command []string) (pid int) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	time.Sleep(100 * time.Millisecond) // let it reach its main loop
	return cmd.Process.Pid
}
