package e2e

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "github.com/google/pprof/profile"

	"fulgur/internal/profile/report"
	"fulgur/internal/testenv"
)

// accountant is a program whose tasks account for their own CPU time, and call functions in C of
// their language and of zlib.
type accountant struct {
	module string // of its functions
	cmd    *exec.Cmd
	// library matches functions of zlib, in files of the runtime or of their own.
	library *regexp.Regexp
	// caller is the function that calls zlib, and task whether it is one of the tasks.
	caller string
	task   bool
}

// place copies a file of testdata to where an interpreter can read it, and returns the command that
// runs it for a few seconds of CPU time.
func place(t *testing.T, i interpreter, file string, flags ...string) *exec.Cmd {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), file)
	argv := append([]string{i.program}, flags...)
	if i.root != "" {
		script = "/" + file
		argv = append([]string{testenv.Tool(t, "chroot"), i.root}, argv...)
	}
	if err := os.WriteFile(filepath.Join(i.root, script), source, 0o644); err != nil {
		t.Fatal(err)
	}
	argv = append(argv, script, accountedSeconds)
	return exec.Command(argv[0], argv[1:]...)
}

// compresses matches functions of zlib that only its function deflate calls.
var compresses = regexp.MustCompile(`slow|fast|longest|^libz\.so`)

// accountedSeconds is the CPU time of an accountant.
const accountedSeconds = "3"

// Functions of scripts own the time of the interpreter and of functions in C of their language: the
// shares are those of the CPU time that the programs measure, and the numbers of samples those of the
// stacks in which the function is the innermost one of the language, as in py-spy. Functions of zlib
// keep their own, and have their caller.
func TestOwnTime(t *testing.T) {
	testenv.Root(t)
	zlib := regexp.MustCompile(`^(Cr_z_)?(deflate|longest_match|fill_window|insert_string|compress_block|_tr_|adler32)|^libz\.so`)
	check := func(name string, a accountant) {
		t.Run(name, func(t *testing.T) { a.check(t) })
	}
	for _, i := range pythons(t) {
		check(i.name, accountant{pythonModule, place(t, i, "own.py"), zlib, "own_zlib", true})
	}
	for _, i := range interpreters(t, "node", "nodes.sh", "FULGUR_TEST_NODES") {
		check(i.name, accountant{jsModule, place(t, i, "own.js", "--single-threaded"), zlib, "processChunkSync", false})
	}
	for _, i := range rubies(t) {
		check(i.name, accountant{rubyModule, place(t, i, "own.rb", "--disable-gems"), zlib, "own_zlib", true})
	}
	// HotSpot must not inline tasks, because it would describe some instructions of one as part of another.
	flags := []string{"-XX:+UseSerialGC", "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Own.own_*"}
	for _, j := range javas(t) {
		check(j.name, accountant{"[java]", j.command(t, flags, "Own", accountedSeconds), zlib, "java.util.zip.Deflater.deflateBytesBytes", false})
	}
}

func (a accountant) check(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.pb.gz")
	_, printed := measureReady(t, a.cmd, "profile", "-F", "997", "-o", path)
	var used map[string]int
	if err := json.Unmarshal([]byte(printed), &used); err != nil {
		t.Fatalf("%v in %s", err, printed)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(fulgur(t, "report", "--format", "json", "--value", "samples", "--top", "100000", path).stdout), &r); err != nil {
		t.Fatal(err)
	}
	total, inner, library := a.innermost(t, path)

	module := strings.Trim(a.module, "[]")
	tasks, libraries, hottest := map[string]int{}, 0, ""
	for _, f := range r.Functions {
		own := int(math.Round(f.Own * float64(total)))
		switch _, isTask := used[f.Name]; {
		case f.Module == module && isTask:
			tasks[f.Name] += own
		case a.library.MatchString(f.Name) && f.Module != module && own > 0:
			libraries += own
			if compresses.MatchString(f.Name) && hottest == "" {
				if hottest = f.Name; f.Caller != a.caller {
					t.Errorf("%s: called by %q, want %q", f.Name, f.Caller, a.caller)
				}
			}
		}
	}
	for name := range used {
		got, want := tasks[name], inner[name]
		if a.task && name == a.caller {
			// The rest belongs to functions of zlib.
			if got += libraries; got < want*9/10 || tasks[name] > want/2 {
				t.Errorf("%s: owns %d samples, and zlib %d, want %d together", name, tasks[name], libraries, want)
			}
			tasks[name] = want
			continue
		}
		if name == "own_numpy" {
			tasks[name] = want // numpy's functions own nearly all of it
			continue
		}
		if got != want {
			t.Errorf("%s: owns %d samples, and is the innermost function in %d", name, got, want)
		}
	}
	if libraries < library*9/10 || library == 0 {
		t.Errorf("functions of zlib own %d samples, want nearly all of %d", libraries, library)
	}
	compareWith(t, "CPU time", tasks, used, true)
}

// innermost returns the number of samples of a profile, and by function that of the stacks in which it is the
// innermost function of the language, without those in which it calls code without a name: generated code, or a function whose name
// was not read in time. It also returns how many of those of the caller of zlib have a function
// of zlib.
func (a accountant) innermost(t *testing.T, path string) (total int, inner map[string]int, library int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := pb.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	inner = map[string]int{}
	for _, s := range p.Sample {
		total += int(s.Value[0])
		hasLibrary, isUnknown := false, false
		for _, l := range s.Location {
			i := slices.IndexFunc(l.Line, func(l pb.Line) bool { return a.isScript(l.Function) })
			if l.Mapping == nil || l.Mapping.File != a.module || i < 0 {
				isUnknown = isUnknown || l.Mapping != nil && (l.Mapping.File == "[jit]" || l.Mapping.File == a.module && len(l.Line) == 0)
				hasLibrary = hasLibrary || slices.ContainsFunc(l.Line, func(l pb.Line) bool { return a.library.MatchString(l.Function.Name) })
				continue
			}
			if isUnknown {
				break
			}
			inner[l.Line[i].Function.Name] += int(s.Value[0])
			if hasLibrary && l.Line[i].Function.Name == a.caller {
				library += int(s.Value[0])
			}
			break
		}
	}
	return total, inner, library
}

// isScript reports whether a function in the module of a language is of a program, rather than a builtin
// function of JavaScript or Ruby, or a stub of the JVM.
func (a accountant) isScript(f *pb.Function) bool {
	switch a.module {
	case jsModule:
		return f.Filename != ""
	case "[java]":
		return strings.Contains(f.Name, ".")
	case rubyModule:
		return !strings.HasPrefix(f.Filename, "<internal:")
	}
	return true
}
