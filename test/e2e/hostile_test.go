package e2e

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// These tests profile programs that are malformed, by accident or to harm fulgur's user.
// The profile is completed, and fulgur reports losses once.

// victim starts a program to profile, which is killed when the test ends, and returns its
// PID.
func victim(t *testing.T, path string, env ...string) string {
	t.Helper()
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), env...)
	start(t, cmd)
	return strconv.Itoa(cmd.Process.Pid)
}

// once checks that a run printed text exactly once.
func once(t *testing.T, stderr, text string) {
	t.Helper()
	if n := strings.Count(stderr, text); n != 1 {
		t.Errorf("%q occurs %d times, want once:\n%s", text, n, stderr)
	}
}

// garble overwrites size bytes of a file with nonsense.
func garble(t *testing.T, path string, offset, size uint64) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(offset, size))
	for i := range size {
		content[offset+i] = byte(random.Uint32())
	}
	if err := testenv.WriteProgram(path, content); err != nil {
		t.Fatal(err)
	}
}

// garbleSections returns a function that garbles the sections with the given prefix of
// the name.
func garbleSections(prefix string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, s := range f.Sections {
			if strings.HasPrefix(s.Name, prefix) {
				garble(t, path, s.Offset, s.FileSize)
			}
		}
	}
}

// sectionHeaders returns the offset of an ELF file's section headers.
func sectionHeaders(t *testing.T, path string) uint64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[0x28:])
}

// Files with garbage in all parts that do not run cost at most their names.
func TestHostileELF(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	for _, test := range []struct {
		name    string
		spoil   func(t *testing.T, path string)
		message string // message about the file, "" if its names are found
	}{
		{"DWARF", garbleSections(".debug_"), "incomplete names: "},
		{"unwind tables", garbleSections(".eh_frame"), "unwind tables: "},
		{"symbols", garbleSections(".symtab"), "samples with unnamed callers"},
		{"section headers", func(t *testing.T, path string) { garble(t, path, sectionHeaders(t, path), 30*64) }, "samples in unnamed functions"},
		{"place of section headers", func(t *testing.T, path string) { garble(t, path, 0x28, 8) }, "no names: "},
		{"end", func(t *testing.T, path string) {
			if err := os.Truncate(path, int64(sectionHeaders(t, path))); err != nil {
				t.Fatal(err)
			}
		}, "no names: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := compile(t, "endless.c", "endless", "-g")
			test.spoil(t, path)
			pid := victim(t, path)
			r := sampleWork(t, 200*time.Millisecond, []string{pid}, "profile", "-p", pid, "-F", "199", "-f")
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			checkTask(t, folded(t, r.stdout), "endless")
			once(t, r.stderr, test.message)
		})
	}
}

// File names that are not printable are shown with escapes, everywhere.
func TestHostileNames(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir := t.TempDir() + "/a;b\nc 1\n\x1b[2J"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := duplicate(t, os.Args[0], dir)
	named := dir + "/\x1b]0;\n7 1\n\a"
	if err := os.Rename(path, named); err != nil {
		t.Fatal(err)
	}
	pid := victim(t, named, "E2E_WORKLOAD=shares")
	for _, args := range [][]string{{"-f"}, {}, {"--format", "html"}} {
		r := sampleWork(t, 100*time.Millisecond, []string{pid}, append([]string{"profile", "-p", pid, "-F", "199"}, args...)...)
		if r.code != 0 || strings.Contains(r.stdout+r.stderr, "\x1b") {
			t.Errorf("%q: exit code %d, want 0; %q, %q", args, r.code, r.stdout, r.stderr)
		}
		if slices.Contains(args, "-f") {
			stacks := folded(t, r.stdout)
			if len(stacks) == 0 {
				t.Errorf("nothing was sampled: %s", r.stderr)
			}
			for stack := range stacks {
				if task, _, _ := strings.Cut(stack, ";"); !strings.HasPrefix(task, `\x1b]0:\n7 1\n\a`) {
					t.Errorf("stack %q has task %q, want an escaped name", stack, task)
				}
			}
		}
	}
}

// Anybody may have written a perf map.
func TestHostilePerfMap(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	if loops[runtime.GOARCH] == nil {
		testenv.Unsupported(t, "no machine code for %s", runtime.GOARCH)
	}
	shell := testenv.Tool(t, "sh")
	const function = "700000000000 10000 \x1b[2JJIT\n"
	for _, test := range []struct {
		name, content string
		size          int64  // size of the file, if it has a hole at its end
		message       string // message about the map
	}{
		{"escapes", function, 0, ""},
		{"garbage", "\xff\xfe\n\nffffffffffffffffff 1 x\nffffffffffffffff ffffffffffffffff everything\n" + function + "-1 -1 -1\n", 0, "perf map has 4 malformed lines"},
		{"1 GB", function, 1 << 30, "copy names of JIT-compiled code: more than 268435456 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			// In the directory of perf maps, so that a perf map can be a link to it.
			f, err := os.CreateTemp("/tmp", "fulgur-e2e-map-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Remove(f.Name()) })
			_, err = f.WriteString(test.content)
			if err := errors.Join(err, f.Truncate(max(test.size, int64(len(test.content)))), f.Close()); err != nil {
				t.Fatal(err)
			}
			cmd := command(t, "profile", "-F", "199", "-f", "--", shell, "-c", `ln "$0" /tmp/perf-$$.map && exec "$1"`, f.Name(), os.Args[0])
			runJIT(t, cmd, "keep map", "/tmp", "perf-%d.map").end("map", false)
			r := finish(t, cmd)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			if n := count(folded(t, r.stdout), `;\x1b[2JJIT`); n == 0 {
				t.Errorf("no samples are in the function:\n%s", r.stdout)
			}
			if strings.Contains(r.stdout+r.stderr, "\x1b") {
				t.Errorf("got raw escapes, want none: %q, %q", r.stdout, r.stderr)
			}
			if test.message != "" {
				once(t, r.stderr, test.message)
			} else if strings.Contains(r.stderr, " names: ") {
				t.Errorf("standard error = %s, want nothing about names", r.stderr)
			}
			checkResident(t, cmd.ProcessState, 256<<10)
		})
	}
}

// Names in a jitdump file are untrusted.
func TestHostileJITDump(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	if loops[runtime.GOARCH] == nil {
		testenv.Unsupported(t, "no machine code for %s", runtime.GOARCH)
	}
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "profile", "-F", "199", "-f", "--", program)
	cmd.Dir = t.TempDir()
	const name = "\x1b[2J;JIT"
	runJIT(t, cmd, "dump "+name, cmd.Dir, "jit-%d.dump").end(name, true)
	r := finish(t, cmd)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	if n := count(folded(t, r.stdout), `;\x1b[2J:JIT`); n == 0 {
		t.Errorf("no samples are in the function:\n%s", r.stdout)
	}
	if strings.Contains(r.stdout+r.stderr, "\x1b") {
		t.Errorf("got raw escapes, want none: %q, %q", r.stdout, r.stderr)
	}
	// The file is mapped as executable, but is not code: it needs no unwind tables.
	if strings.Contains(r.stderr, ".dump") {
		t.Errorf("standard error = %s, want nothing about the file", r.stderr)
	}
}

// A file system that stops answering does not stop the profile.
func TestHostileMount(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	program, stop := fusetest.Mount(t, os.Args[0])
	if _, err := os.ReadFile(program); err != nil { // into the page cache, from where it runs
		t.Fatal(err)
	}
	pid := victim(t, program, "E2E_WORKLOAD=shares")
	awaitWork(t, pid, 100*time.Millisecond) // it is at work
	stop()
	r := sampleWork(t, 200*time.Millisecond, []string{pid}, "profile", "-p", pid, "-F", "199", "-f")
	if r.code != 0 || len(folded(t, r.stdout)) == 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	once(t, r.stderr, "does not answer")
}

// Jumps of a program on FUSE are not counted: the kernel would wait for the daemon.
func TestHostileMountCounted(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "fulgur counts no jumps on %s", runtime.GOARCH)
	}
	program, stop := fusetest.Mount(t, boltable(t, "branches"))
	if _, err := os.ReadFile(program); err != nil { // into the page cache, from where it runs
		t.Fatal(err)
	}
	pid := running(t, program)
	awaitWork(t, pid, 100*time.Millisecond) // it is at work
	out := filepath.Join(t.TempDir(), "out.preagg")
	instead, code, counted := "breakpoints", 0, "hardware breakpoints: "
	if !testenv.HasBreakpoints(t) {
		instead, code, counted = "stepping", 1, "hardware breakpoints have no effect on this machine; or use --branches "
	}
	for _, test := range []struct {
		branches string
		stopped  bool
		code     int
		want     string
	}{
		{"counting", false, 1, "may not respond (FUSE): copy the file to a local disk, and run the copy; or use --branches " + instead + "\n"},
		{"breakpoints", false, code, counted},
		{"counting", true, 1, "does not answer"},
	} {
		if test.stopped {
			stop()
		}
		var r result
		testenv.Await(t, func() bool {
			r = fulgur(t, "bolt", "--branches", test.branches, "-p", pid, "-o", out, "1")
			return test.stopped || strings.Contains(r.stderr, test.want) || !strings.Contains(r.stderr, "does not answer") // on a busy machine, an answer may come late
		}, func() string { return "the file system answers, but fulgur says: " + r.stderr })
		if r.code != test.code || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", test.branches, r.code, test.code, test.want, r.stderr)
		}
	}
}

// A process with an open file on a file system that stops responding still exits:
// the kernel closes its files without a request to the file system.
func TestHostileMountHeld(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	cmd := command(t, "profile", "-F", "199", "-f") // exits after the file system, which may block it
	program, stop := fusetest.Mount(t, os.Args[0])
	if _, err := os.ReadFile(program); err != nil { // into the page cache, from where it runs
		t.Fatal(err)
	}
	pid := victim(t, program, "E2E_WORKLOAD=shares")
	awaitWork(t, pid, 100*time.Millisecond) // it is at work
	cmd.Args = append(cmd.Args, "-p", pid)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait := func(what string, happened func() bool) {
		t.Helper()
		testenv.Await(t, happened, func() string { return "waited until fulgur " + what })
	}
	// Ignore files that are open only for a moment, for reading.
	held, looks := "", 0
	wait("holds the program for long", func() bool {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		now := strings.Join(slices.DeleteFunc(fds, func(fd string) bool {
			path, err := os.Readlink(fd)
			return err != nil || path != program
		}), " ")
		if now != held {
			held, looks = now, 0
		}
		looks++
		return held != "" && looks > 200
	})
	stop()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	wait("exits", func() bool {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		return info.Signo != 0
	})
	if r := finish(t, cmd); r.code != 0 {
		t.Errorf("exit code %d, want 0: %s", r.code, r.stderr)
	}
}

// fulgur does not wait for a file system with a program's debug file, either.
func TestHostileDebugDirectory(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	objcopy := testenv.Tool(t, "objcopy")
	path := compile(t, "endless.c", "endless", "-g")
	for _, args := range [][]string{
		{"--strip-all", path},
		{"--add-gnu-debuglink=" + os.Args[0], path}, // any file that is not beside it
	} {
		if out, err := exec.Command(objcopy, args...).CombinedOutput(); err != nil {
			t.Fatalf("objcopy: %v: %s", err, out)
		}
	}
	file, stop := fusetest.Mount(t, os.Args[0])
	if err := os.Symlink(filepath.Dir(file), filepath.Join(filepath.Dir(path), ".debug")); err != nil {
		t.Fatal(err)
	}
	pid := victim(t, path)
	stop()
	r := sampleWork(t, 200*time.Millisecond, []string{pid}, "profile", "-p", pid, "-F", "199", "-f")
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	checkTask(t, folded(t, r.stdout), "endless")
	once(t, r.stderr, "does not answer")
}

// fulgur does not wait for a file system with its cache of debug files, and goes on without it.
func TestHostileCache(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	path := compile(t, "endless.c", "endless")
	tool(t, "objcopy", "--strip-all", path)
	file, stop := fusetest.Mount(t, os.Args[0])
	stop()
	pid := victim(t, path)
	cmd := command(t, "profile", "-p", pid, "-F", "199", "-f")
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=http://127.0.0.1:9", "DEBUGINFOD_CACHE_PATH=", "XDG_CACHE_HOME="+filepath.Dir(file)+"/c")
	r := sampleWorkBy(t, cmd, 200*time.Millisecond, pid)
	if r.code != 0 || len(folded(t, r.stdout)) == 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	once(t, r.stderr, "does not answer")
}

// While the file system of an output does not respond, Ctrl-C ends fulgur at once.
func TestHostileOutput(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	file, stop := fusetest.Mount(t, os.Args[0])
	stop()
	out := filepath.Dir(file) + "/out.html"
	stderr, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd := command(t, "profile", "-o", out)
	cmd.Stderr = in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		for all := bufio.NewScanner(stderr); all.Scan(); {
			lines <- all.Text()
		}
	}()
	for i, want := range []string{"fulgur: " + out + ": its file system does not answer; waiting", "fulgur: open " + out + ": its file system does not answer"} {
		if got := testenv.Receive(t, lines, "fulgur does not report the file system"); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if i > 0 {
			continue
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("got %v, want exit code 1", err)
	}
}
