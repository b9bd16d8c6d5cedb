package unwinding

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/capture/target"
	"fulgur/internal/process"
	"fulgur/internal/testenv"
)

// loaded returns the files that the dynamic loader loads for a program, according to the output of a
// command such as ldd.
func loaded(t *testing.T, command ...string) []string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, m := range regexp.MustCompile(`(?m)(?:=> |^\t)(/\S+) \(`).FindAllStringSubmatch(string(out), -1) {
		files = append(files, m[1])
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// libraries finds the files that a program will map once it starts: libraries by name, by
// a path relative to the program, and the libraries of libraries.
func TestLibraries(t *testing.T) {
	checkLibraries(t, testenv.Tool(t, "gcc"), func(program string) []string {
		want := loaded(t, testenv.Tool(t, "ldd"), program)
		if len(want) < 5 {
			t.Fatalf("got only %v from ldd", want)
		}
		return want
	})
}

// musl's loader is the C library, and searches other directories than glibc's, which has files of the
// same names.
func TestLibrariesOfMusl(t *testing.T) {
	checkLibraries(t, testenv.Tool(t, "musl-gcc"), func(program string) []string {
		loader := "/lib/ld-musl-" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".so.1"
		want := loaded(t, loader, "--list", program)
		all := len(want)
		want = slices.DeleteFunc(want, func(path string) bool { return path == loader }) // mapped from the start
		if len(want) != 2 || all != 3 {
			t.Fatalf("got %v from musl's loader, want itself and two libraries", want)
		}
		return want
	})
}

// checkLibraries builds a program with compiler, and compares its libraries with those that want
// returns.
func checkLibraries(t *testing.T, compiler string, wanted func(program string) []string) {
	dir := t.TempDir()
	build := func(source string, args ...string) {
		t.Helper()
		cmd := exec.Command(compiler, append([]string{"-xc", "-", "-x", "none"}, args...)...)
		cmd.Stdin, cmd.Dir = strings.NewReader(source), dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "near"), 0o755), os.Mkdir(filepath.Join(dir, "far"), 0o755)); err != nil {
		t.Fatal(err)
	}
	build("int far(void) { return 1; }", "-shared", "-fPIC", "-Wl,-soname,libfar.so", "-o", "far/libfar.so")
	build("int far(void); int near(void) { return far(); }", "-shared", "-fPIC", "-Wl,-soname,libnear.so", "-o", "near/libnear.so",
		"-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN/../far", "far/libfar.so", "-lm")
	// $ORIGIN is the directory of the link, not of the file.
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "real", "deep"), 0o755),
		os.Rename(filepath.Join(dir, "near", "libnear.so"), filepath.Join(dir, "real", "deep", "libnear.so.1")),
		os.Symlink("../real/deep/libnear.so.1", filepath.Join(dir, "near", "libnear.so"))); err != nil {
		t.Fatal(err)
	}
	build("int near(void); int main(void) { return near(); }", "-o", "program",
		"-Wl,-rpath,/nowhere:$ORIGIN/near", "-Wl,-rpath-link,far", "near/libnear.so")

	program := filepath.Join(dir, "program")
	want := wanted(program)
	launched, err := target.Start([]string{program})
	if err != nil {
		t.Fatal(err)
	}
	defer launched.Close()
	processes := process.NewTable(process.Options{})
	defer processes.Close()
	got := Libraries(processes, launched.PID())
	for _, path := range want {
		is, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, f := range got {
			if info, err := os.Stat(f.Path); err == nil && os.SameFile(info, is) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: found %d times, want once", path, found)
		}
	}
	if len(got) != len(want) {
		for _, f := range got {
			t.Logf("found %s", f.Path)
		}
		t.Errorf("got %d files, want %d: %v", len(got), len(want), want)
	}
}
