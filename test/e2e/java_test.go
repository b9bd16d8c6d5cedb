package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// java is a JVM under test.
type java interpreter

// javas returns the JVMs to test.
func javas(t *testing.T) (list []java) {
	t.Helper()
	for _, i := range interpreters(t, "java", "jdks.sh", "FULGUR_TEST_JDKS") {
		list = append(list, java(i))
	}
	return list
}

// command compiles a program of testdata, and returns the command that runs it with flags of
// java.
func (j java) command(t *testing.T, flags []string, program string, args ...string) *exec.Cmd {
	t.Helper()
	classes := filepath.Join(built, "classes")
	inside := classes
	if j.root != "" {
		classes, inside = filepath.Join(j.root, "classes"), "/classes"
	}
	compileJava(t, program, classes)
	args = append(slices.Concat([]string{"-Xmx128m"}, flags, []string{"-cp", inside, program}), args...)
	if j.root == "" {
		return exec.Command(j.program, args...)
	}
	proc := filepath.Join(j.root, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		t.Fatal(err)
	}
	// The program finds its libraries by /proc/self/exe.
	const script = `root=$1; shift; mount --bind /proc "$root/proc" && exec chroot "$root" "$@"`
	return exec.Command(testenv.Tool(t, "unshare"), append([]string{"--mount", "sh", "-c", script, "sh", j.root, j.program}, args...)...)
}

// compiledJava holds the paths of compiled classes.
var compiledJava = map[string]bool{}

// compileJava compiles a program of testdata into a directory, if it is not there.
func compileJava(t *testing.T, program, classes string) {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if compiledJava[filepath.Join(classes, program)] {
		return
	}
	compile := exec.Command(testenv.Tool(t, "javac"), "-encoding", "UTF-8", "--release", "17", "-d", classes, "testdata/"+program+".java")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	compiledJava[filepath.Join(classes, program)] = true
}

// start runs testdata/Frames.java, and decodes the line that it prints into account.
func (j java) start(t *testing.T, mode string, account any) *exec.Cmd {
	t.Helper()
	cmd := j.command(t, nil, "Frames", mode)
	startAccounting(t, cmd, account)
	return cmd
}

// javaModule is the module of Java's frames.
const javaModule = "[java]"

// javaFrames returns the Java methods of a sample, leaf first, without the JVM's stubs.
func (s streamed) javaFrames() (chain []pyFrame) {
	for _, f := range s.User {
		if f.Module == javaModule && (f.Function == "" || strings.Contains(f.Function, ".")) {
			chain = append(chain, pyFrame{f.Function, f.File, f.Line})
		}
	}
	return chain
}

// hiddenClass matches the part of a name that differs in each run.
var hiddenClass = regexp.MustCompile(`(\$\$Lambda)?(\$\d+)?/0x[0-9a-f]+\.`)

// shown returns a frame as fulgur shows it. Native methods and hidden classes have no lines.
func shown(f pyFrame) pyFrame {
	f.name = hiddenClass.ReplaceAllString(f.name, "$1.")
	if f.file == "null" {
		f.file = ""
	}
	f.line = max(f.line, 0)
	return f
}

// Samples of threads that stay in one place have the stacks that they recorded with
// StackWalker, in interpreted and compiled methods.
func TestJavaThreads(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for _, j := range javas(t) {
		t.Run(j.name, func(t *testing.T) {
			var account struct{ Noted [][]pyFrame }
			cmd := j.start(t, "threads", &account)
			noted, matched := map[string]bool{}, map[string]bool{}
			for _, chain := range account.Noted {
				for i := range chain {
					chain[i] = shown(chain[i])
				}
				noted[fmt.Sprint(chain[1:])] = true // all are in burn
			}
			samples, settled := 0, map[int]bool{}
			sampleProcess(t, cmd, func(text string, s streamed) {
				got := s.javaFrames()
				if len(got) < 2 || got[0].name != "Frames.spin" || got[1].name != "Frames.burn" || s.End != "complete" {
					if settled[s.TID] {
						t.Errorf("a thread left its place, or its stack is incomplete: %s", text)
					}
					return // a thread of the JVM, or one that has not begun to burn
				}
				settled[s.TID] = true
				samples++
				if chain := fmt.Sprint(got[2:]); noted[chain] {
					matched[chain] = true
				} else {
					t.Errorf("a stack that no thread recorded: %s", chain)
				}
			})
			for chain := range noted {
				if !matched[chain] {
					t.Errorf("no sample has the recorded stack %s", chain)
				}
			}
			t.Logf("%s: %d samples, %d of %d stacks", j.name, samples, len(matched), len(noted))
		})
	}
}

// A program that calls a few methods all the time, which HotSpot compiles and inlines: each
// sample has a chain of calls of the program, and most have the innermost method.
func TestJavaInlined(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	callers := map[string][]string{
		"Frames.innermost": {"Frames.middle"}, "Frames.middle": {"Frames$$Lambda.applyAsInt"},
		"Frames$$Lambda.applyAsInt": {"Frames.apply"}, "Frames.apply": {"Frames.around"}, "Frames.around": {"Frames.hot"},
		"Frames.hot": {"Frames.main"}, "java.lang.System.nanoTime": {"Frames.hot"},
	}
	for _, j := range javas(t) {
		t.Run(j.name, func(t *testing.T) {
			var account struct{}
			cmd := j.start(t, "hot", &account)
			samples, innermost, lines := 0, 0, 0
			sampleProcess(t, cmd, func(_ string, s streamed) {
				chain := s.javaFrames()
				if len(chain) == 0 || chain[len(chain)-1].name != "Frames.main" {
					return // a thread of the JVM
				}
				samples++
				if chain[0].name == "Frames.innermost" {
					innermost++
				}
				if chain[0].line != 0 {
					lines++
				}
				for i, f := range chain[:len(chain)-1] {
					if !slices.Contains(callers[f.name], chain[i+1].name) {
						t.Errorf("%s is called by another method: %+v", f.name, chain)
						break
					}
				}
			})
			t.Logf("%s: %d samples, %d in the innermost method, %d with a line", j.name, samples, innermost, lines)
			if innermost == 0 || lines == 0 {
				t.Error("no samples of the innermost method, or none with a line")
			}
		})
	}
}

// HotSpot uses the memory of the methods of an unloaded class again: a sample has the names of
// the class that its thread runs. The interpreter's frames have the address of a method.
func TestJavaUnloaded(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	made := regexp.MustCompile(`^Made(\d+)\.(run|inner)(\d*)$`)
	for _, j := range javas(t) {
		t.Run(j.name, func(t *testing.T) {
			cmd := j.command(t, []string{"-Xint", "-XX:+UseSerialGC"}, "Reused")
			r := fulgur(t, append([]string{"profile", "-F", "1999", "--stream", "--format", "jsonl", "--"}, cmd.Args...)...)
			if r.code != 0 {
				t.Fatalf("exit code %d: %s", r.code, r.stderr)
			}
			classes, frames := map[string]bool{}, 0
			for _, s := range streamedBy(t, r) {
				number, ok := strings.CutPrefix(s.Comm, "made ")
				if !ok {
					continue
				}
				for _, f := range s.User {
					m := made.FindStringSubmatch(f.Function)
					if m == nil {
						continue
					}
					if m[1] != number || m[3] != "" && m[3] != number {
						t.Errorf("%s is in a sample of thread %s", f.Function, s.Comm)
					}
					classes[number] = true
					frames++
				}
			}
			t.Logf("%s: %d frames of %d classes", j.name, frames, len(classes))
			if len(classes) < 2 {
				t.Errorf("samples of %d classes, want several", len(classes))
			}
		})
	}
}

// A stack of a virtual thread has all of its frames, or one that stands for those that HotSpot
// keeps in its heap, and leads to the thread that carries it.
func TestJavaVirtualThreads(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	const depth = 21
	for _, j := range javas(t) {
		if j.version(t) < 21 {
			continue
		}
		t.Run(j.name, func(t *testing.T) {
			var account struct{}
			cmd := j.start(t, "virtual", &account)
			whole, inHeap := 0, 0
			sampleProcess(t, cmd, func(text string, s streamed) {
				works, deep, heap, carried := false, 0, false, false
				for _, f := range s.User {
					carried = carried || f.Function == "java.util.concurrent.ForkJoinWorkerThread.run"
					works = works || f.Function == "Frames.innermost"
					heap = heap || f.Function == "(frames in the Java heap)"
					if f.Function == "Frames.deep" {
						deep++
					}
				}
				switch {
				case !works:
				case s.End != "complete" || !carried:
					t.Errorf("not to the carrier: %s", text)
				case heap:
					inHeap++
				case deep == depth:
					whole++
				default:
					t.Errorf("%d of %d frames, and none that stands for others: %s", deep, depth, text)
				}
			})
			t.Logf("%s: %d whole stacks, %d with frames in the heap", j.name, whole, inHeap)
			if inHeap == 0 {
				t.Error("no stack has frames in the heap")
			}
		})
	}
}

// The stack of a Java method that native code calls (since Java 22) leads to the Java method that
// called the native code.
func TestJavaUpcalls(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for _, j := range javas(t) {
		if j.version(t) < 22 {
			continue
		}
		t.Run(j.name, func(t *testing.T) {
			cmd := j.command(t, []string{"--enable-native-access=ALL-UNNAMED"}, "Upcalls")
			startAccounting(t, cmd, &struct{}{})
			samples := 0
			sampleProcess(t, cmd, func(text string, s streamed) {
				var found []string
				for _, f := range s.User {
					switch {
					case f.Function == "Upcalls.compare", f.Function == "Upcalls.main":
						found = append(found, f.Function)
					case strings.Contains(f.Module, "libc.so") && !slices.Contains(found, "libc"):
						found = append(found, "libc")
					}
				}
				if len(found) == 0 || found[0] != "Upcalls.compare" {
					return
				}
				samples++
				if fmt.Sprint(found) != "[Upcalls.compare libc Upcalls.main]" || s.End != "complete" {
					t.Errorf("want compare, called by libc's qsort, called by main: %s", text)
				}
			})
			t.Logf("%s: %d samples", j.name, samples)
			if samples == 0 {
				t.Error("no samples of a method that native code calls")
			}
		})
	}
}

// version returns the version of a JVM.
func (j java) version(t *testing.T) (version int) {
	t.Helper()
	var text string
	format := "openjdk version \"%d"
	if j.root != "" {
		_, text, _ = strings.Cut(j.name, "-")
		format = "%d"
	} else {
		out, err := exec.Command(j.program, "-version").CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		text = string(out)
	}
	if _, err := fmt.Sscanf(text, format, &version); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return version
}
