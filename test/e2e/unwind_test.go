package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// buildDeep builds testdata/deep.cc as distributions do.
func buildDeep(t *testing.T) string {
	t.Helper()
	return testenv.Compile(t, "deep", "g++", "-O2", "-fomit-frame-pointer", "-Wall", "-Wextra", "-Werror", "-pthread", "testdata/deep.cc")
}

// notReady marks stacks that were walked before their tables were loaded.
const notReady = "[truncated: unwind tables not loaded yet]"

// noMapping marks stacks that were walked before fulgur knew about the code's mapping.
const noMapping = "[truncated: no code mapped]"

// ends counts a command's samples by the reason why the user stack ends, "" for complete
// stacks.
type ends map[string]int

func (e ends) total() (sum int) {
	for _, n := range e {
		sum += n
	}
	return sum
}

// whole returns the share of samples with complete stacks.
func (e ends) whole() float64 { return float64(e[""]) / float64(max(e.total(), 1)) }

// settled returns the ends without the stacks that were walked before fulgur knew about the
// code. Their number depends on the load of the machine.
func (e ends) settled() ends {
	rest := maps.Clone(e)
	delete(rest, notReady)
	delete(rest, noMapping)
	return rest
}

// sample matches a sample of a text profile: the frames, the mark at the end, the command
// and the count.
var sample = regexp.MustCompile(`(?m)^((?:    .*\n)*?)((?:    \[truncated: .*\]\n)?)    - +(\S+) \((\d+)[^)]*\)\n +(\d+)$`)

// endsOf reads a text profile, as ends by command.
func endsOf(t *testing.T, text string) map[string]ends {
	t.Helper()
	by := map[string]ends{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		frames, end, comm := m[1], m[2], m[3]
		n, err := strconv.Atoi(m[5])
		if err != nil {
			t.Fatal(err)
		}
		if end == "" && strings.HasSuffix(frames, "    [broken stack]\n") {
			end = "broken"
		}
		if by[comm] == nil {
			by[comm] = ends{}
		}
		by[comm][strings.TrimSpace(end)] += n
	}
	return by
}

// ofProcesses returns the samples of the given processes in a text profile. Others may run
// the same programs.
func ofProcesses(text string, pids []string) string {
	var out strings.Builder
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		if slices.Contains(pids, m[4]) {
			fmt.Fprintln(&out, m[0])
		}
	}
	return out.String()
}

// rooted counts a command's samples with an outermost function that begins a thread,
// according to its name. Like settled, it leaves out stacks that were walked too early.
func rooted(text, comm string) (with, all int) {
	roots := regexp.MustCompile(`(?m)^    (_start|__libc_start_main|__libc_start_call_main|start_thread|__?clone3?|_dl_start_user|runtime\.(goexit|mstart|rt0_go|main)\b)`)
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		if end := strings.TrimSpace(m[2]); m[3] != comm || end == notReady || end == noMapping {
			continue
		}
		n, _ := strconv.Atoi(m[5])
		all += n
		if roots.MatchString(m[1]) {
			with += n
		}
	}
	return with, all
}

// run starts a program that is killed when the test ends. The program has a low priority,
// so that fulgur loads its tables soon even on a busy machine.
func run(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	start(t, cmd)
	if err := unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, 5); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// mixedLoad starts the available programs of many kinds, which run until they are killed.
// It returns their processes by command name.
func mixedLoad(t *testing.T) map[string]string {
	t.Helper()
	pids := map[string]string{}
	scripts := map[string][]string{
		"python3": {"-c", `
import json, re
d = {str(i): list(range(50)) for i in range(200)}
while True:
    s = json.dumps(d); json.loads(s); sorted(re.findall(r'\d+5', s), key=lambda x: int(x))`},
		"node": {"-e", `
const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2);
const turn = () => { fib(20); JSON.parse(JSON.stringify([...Array(500).keys()].map(i => ({i, s: 'x' + i})).sort((a, b) => b.i - a.i))); setImmediate(turn); };
turn();`},
		"perl": {"-e", `
while (1) { my %h; $h{$_ % 1000} .= $_ for 1 .. 5000; my @k = sort { $h{$a} cmp $h{$b} } keys %h; my $s = join(",", @k); $s =~ s/\d+/x/g; }`},
		"bash": {"-c", `f() { local x=; for i in {1..300}; do x+=$i; y=${x//1/2}; done; }; while :; do f; done`},
	}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		if _, err := exec.LookPath(name); err != nil {
			continue // use the available ones
		}
		pids[name] = strconv.Itoa(run(t, name, scripts[name]...).Process.Pid)
	}
	pids["deep"] = strconv.Itoa(run(t, buildDeep(t)).Process.Pid)
	goLoad := load(t, "shares")
	if err := unix.Setpriority(unix.PRIO_PROCESS, goLoad.Process.Pid, 5); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(goLoad.Path)
	pids[name[:min(15, len(name))]] = strconv.Itoa(goLoad.Process.Pid)
	return pids
}

// In a profile of the whole system, with many kinds of programs built as distributions
// build them, at least 99 of 100 stacks are complete.
func TestUnwindSystem(t *testing.T) {
	testenv.Root(t)
	programs := mixedLoad(t)
	var pids []string
	for _, pid := range programs {
		awaitWork(t, pid, 50*time.Millisecond) // wait until they run
		pids = append(pids, pid)
	}
	r := sampleWork(t, 250*time.Millisecond, pids, "profile", "-F", "999", "--format", "text", "--no-inlines")
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	text := ofProcesses(r.stdout, pids)
	per, all := endsOf(t, text), ends{}
	for comm := range programs {
		e := per[comm]
		with, named := rooted(text, comm)
		t.Logf("%-15s %5.1f %% whole of %d %v; by names %d of %d", comm, 100*e.whole(), e.total(), e, with, named)
		if e.total() == 0 {
			t.Errorf("got no samples of %s", comm)
		}
		for end, n := range e {
			all[end] += n
		}
	}
	t.Logf("all: %.2f %% whole of %d", 100*all.whole(), all.total())
	checkWhole(t, all.settled(), 0.99)
}

// checkWhole checks that at least the given share of stacks is complete.
func checkWhole(t *testing.T, e ends, want float64) {
	t.Helper()
	if least := stat.Binomial(e.total(), want).Low; e.total() == 0 || e[""] < least {
		t.Errorf("%d of %d stacks reach their root, want %d: %v", e[""], e.total(), least, e)
	}
}

// A launched command is sampled completely, once its code is known.
func TestUnwindCommand(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	for _, mode := range []string{"auto", "dwarf"} {
		r := fulgur(t, "profile", "-F", "997", "--format", "text", "--no-inlines", "--unwind", mode, "--", buildDeep(t), "1")
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		e := endsOf(t, r.stdout)["deep"]
		t.Logf("--unwind %s: %v", mode, e)
		checkWhole(t, e.settled(), 0.98)
		with, all := rooted(r.stdout, "deep")
		if with < stat.Binomial(all, 0.98).Low {
			t.Errorf("--unwind %s: %d of %d stacks end with a function that begins a thread, want nearly all", mode, with, all)
		}
	}
}

// Frame pointers alone lead to the root of a program that keeps them.
func TestUnwindByFramePointers(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	pid := strconv.Itoa(load(t, "shares").Process.Pid) // Go's programs keep them
	r := sampleWork(t, 300*time.Millisecond, []string{pid}, "profile", "-p", pid, "-F", "499", "-f", "--unwind", "fp")
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	stacks := folded(t, r.stdout)
	const root = ";runtime.goexit;runtime.main;main.main;fulgur/test/e2e.TestMain;"
	// These functions never change the frame pointer. Others do when they begin and end, which may
	// be sampled.
	all := 0
	for _, function := range []string{";fulgur/test/e2e.long", ";fulgur/test/e2e.short"} {
		for stack, n := range stacks {
			if !strings.Contains(stack, function) {
				continue
			}
			all += n
			if !strings.Contains(stack, root) {
				t.Errorf("%d samples have the incomplete stack %s", n, stack)
			}
		}
	}
	if all == 0 {
		t.Errorf("got no samples in the program's functions: %v", stacks)
	}
}

// fulgur unwinds a process that starts during the run.
func TestUnwindNewProcess(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	deep := buildDeep(t)
	const frequency = 1999
	// How soon the tables are loaded depends on the load of the machine.
	for work := time.Second; ; work *= 2 {
		profiler := command(t, "profile", "-F", strconv.Itoa(frequency), "--format", "text", "--no-inlines")
		if err := profiler.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, profiler)
		cmd := run(t, deep)
		awaitWork(t, strconv.Itoa(cmd.Process.Pid), work)
		_ = cmd.Process.Kill()
		r := interrupt(t, profiler)
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		e := endsOf(t, r.stdout)["deep"]
		t.Log(e)
		if e.settled().total() > 0 || work > 10*time.Second {
			checkWhole(t, e.settled(), 0.98)
			return
		}
	}
}

// Programs that exit before their tables are made are unwound, too.
func TestUnwindBriefProcesses(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	deep := buildDeep(t)
	// If each process had to wait for its own tables, all of them would be late. How many are late
	// depends on the scheduler, and on a busy machine all of the first ones.
	for processes := 60; ; processes *= 4 {
		script := fmt.Sprintf(`for ((i = 0; i < %d; i++)); do "$0" 0.004; done`, processes)
		r := fulgur(t, "profile", "-F", "1999", "--format", "text", "--no-inlines", "--", "bash", "-c", script, deep)
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		e := endsOf(t, r.stdout)["deep"]
		t.Log(e)
		switch {
		case e[""] > 0:
			return
		case processes > 2000:
			t.Fatalf("no stack of %d processes is complete: %v\n%s", processes, e, r.stderr)
		}
	}
}

// damage makes a copy of a library with damaged unwind information.
func damage(t *testing.T, library, to string, change func(ehFrame []byte)) {
	t.Helper()
	content, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sec := f.Section(".eh_frame")
	if sec == nil {
		t.Fatalf("%s has no .eh_frame", library)
	}
	change(content[sec.Offset:][:sec.Size])
	if err := os.WriteFile(to, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Libraries with broken unwind information affect only their own stacks, and the run
// succeeds.
func TestUnwindDamagedFiles(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	library := compile(t, "library.c", "libwork.so", "-shared", "-fPIC", "-DFUNCTION=works", "-O2", "-fomit-frame-pointer")
	program := compile(t, "plugins.c", "plugins", "-ldl", "-O2", "-fomit-frame-pointer")
	for name, change := range map[string]func([]byte){
		"zeros": func(b []byte) { clear(b) },
		"ones": func(b []byte) {
			for i := range b {
				b[i] = 0xff
			}
		},
		"noise": func(b []byte) {
			for i := range b {
				b[i] = byte(i * 7919 >> 3)
			}
		},
		"lengths that lead nowhere": func(b []byte) { binary.LittleEndian.PutUint32(b, 0x7ffffff0) },
		"a CIE that is its own FDE": func(b []byte) {
			n := binary.LittleEndian.Uint32(b) + 4
			binary.LittleEndian.PutUint32(b[n+4:], 4)
		},
		"rules of other functions": func(b []byte) {
			for len(b) >= 16 {
				n := binary.LittleEndian.Uint32(b)
				if n == 0 || int(n) > len(b)-4 {
					return
				}
				if cie := binary.LittleEndian.Uint32(b[4:]); cie != 0 {
					start := binary.LittleEndian.Uint32(b[8:]) // relative to itself
					binary.LittleEndian.PutUint32(b[8:], start+16)
				}
				b = b[4+n:]
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "zeros" || name == "ones" || name == "lengths that lead nowhere" {
				testenv.Long(t) // the parser's own tests have them, too
			}
			damaged := filepath.Join(t.TempDir(), "libdamaged.so")
			damage(t, library, damaged, change)
			// Until fulgur has seen the second library, it uses the tables of the first one.
			profile, log := filepath.Join(t.TempDir(), "profile"), filepath.Join(t.TempDir(), "log")
			cmd := command(t, "profile", "-F", "997", "--format", "text", "-o", profile, "--log", log, "--no-inlines", "--", program, "1", damaged, library)
			replacing(t, cmd, log, 2)
			text, err := os.ReadFile(profile)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(endsOf(t, string(text))["plugins"])
			// The undamaged library works twice as long.
			with, all := rooted(string(text), "plugins")
			if all == 0 || with < stat.Binomial(all, 0.6).Low {
				t.Errorf("%d of %d stacks are complete, want 0.6:\n%s", with, all, cmd.Stderr)
			}
		})
	}
}

// Libraries that repeatedly replace each other are unwound by their own tables.
func TestUnwindPlugins(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	flags := []string{"-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"}
	build := func(name string) string {
		return compile(t, "library.c", "lib"+name+".so", append(flags, "-shared", "-fPIC", "-DFUNCTION="+name+"_works")...)
	}
	program := compile(t, "plugins.c", "plugins", append(flags, "-ldl")...)
	r := fulgur(t, "profile", "-F", "1999", "--format", "text", "--no-inlines", "--", program, "2", build("alpha"), build("beta"))
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	e := endsOf(t, r.stdout)["plugins"]
	t.Log(e)
	checkWhole(t, e.settled(), 0.98)
}

// Overwriting a library's unwind information, while it is used and read, does no harm.
func TestUnwindChangingFile(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	library := compile(t, "library.c", "libwork.so", "-shared", "-fPIC", "-DFUNCTION=works", "-O2", "-fomit-frame-pointer")
	content, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	sec := f.Section(".eh_frame")
	defer f.Close()
	program := compile(t, "plugins.c", "plugins", "-ldl", "-O2", "-fomit-frame-pointer")
	profiler := command(t, "profile", "-F", "997", "--format", "text", "--", program, "2", library, library)
	if err := profiler.Start(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan error)
	go func() {
		file, err := os.OpenFile(library, os.O_WRONLY, 0)
		for i := 0; err == nil; i++ {
			noise := slices.Clone(content[sec.Offset:][:sec.Size])
			for j := range noise {
				noise[j] ^= byte(i * j)
			}
			_, err = file.WriteAt(noise, int64(sec.Offset))
			select {
			case <-stop:
				done <- file.Close()
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
		done <- err
	}()
	r := finish(t, profiler)
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	if e := endsOf(t, r.stdout)["plugins"]; e.total() == 0 {
		t.Errorf("got no samples: %v", e)
	}
}

// mappings returns the number of code mappings for a process: FULGUR_UNWIND_MAPPINGS, or
// a number that every machine allows.
func mappings(t *testing.T) string {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("FULGUR_UNWIND_MAPPINGS"))
	if err != nil {
		return "30000"
	}
	const limit = "/proc/sys/vm/max_map_count"
	before, err := os.ReadFile(limit)
	if err == nil {
		err = os.WriteFile(limit, []byte(strconv.Itoa(2*n+1000)), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(limit, before, 0); err != nil {
			t.Error(err)
		}
	})
	return strconv.Itoa(n)
}

// A program with more code mappings than any real one, which moves its code every
// millisecond, is measured like others, in bounded memory.
func TestUnwindHostileMappings(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	const work = 500 * time.Millisecond
	remaps := compile(t, "remaps.c", "remaps", "-O2", "-fomit-frame-pointer")
	for _, args := range [][]string{{"churn"}, {"many", mappings(t)}} {
		t.Run(args[0], func(t *testing.T) {
			cmd := exec.Command(remaps, args...)
			cmd.Stderr = os.Stderr
			ready, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			start(t, cmd)
			if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			for _, scope := range [][]string{{"-p", fmt.Sprint(cmd.Process.Pid)}, nil} {
				profiler := command(t, slices.Concat([]string{"profile", "-F", "499", "--format", "text", "--no-inlines"}, scope)...)
				if err := profiler.Start(); err != nil {
					t.Fatal(err)
				}
				awaitSampling(t, profiler)
				awaitWork(t, strconv.Itoa(cmd.Process.Pid), work)
				r := interrupt(t, profiler)
				if r.code != 0 {
					t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
				}
				e := endsOf(t, r.stdout)["remaps"]
				t.Logf("%v %v, %s", scope, e, lastLine(r.stderr))
				checkResident(t, profiler.ProcessState, 256<<10)
				delete(e, notReady) // the number depends on the load of the machine
				checkWhole(t, e, 0.95)
				if t.Failed() {
					t.Log(r.stderr)
				}
			}
		})
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// If the memory is too small for all tables, fulgur loads them on demand, and the summary
// has the remedy.
func TestUnwindMemory(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	deep := buildDeep(t)
	pid := strconv.Itoa(run(t, deep).Process.Pid)
	r := sampleWork(t, time.Second, []string{pid}, "profile", "-p", pid, "-F", "499", "--format", "text", "--no-inlines", "--unwind-memory", "100K")
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	e := endsOf(t, r.stdout)["deep"]
	t.Log(e, r.stderr)
	if e.total() == 0 {
		t.Error("got no samples")
	}
	if !strings.Contains(r.stderr, "--unwind-memory") {
		t.Errorf("got a summary without the tables' memory:\n%s", r.stderr)
	}
}
