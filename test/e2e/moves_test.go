package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// Stacks of code that is no longer where its file was mapped have names, and are complete: code that
// the program has moved, or copied to other memory, before the measurement or during it. Other code
// in the place of a file's code has no names of the file.
func TestMovedCode(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := testenv.Compile(t, "moves", "gcc", "-O1", "-Wall", "-Wextra", "-Werror", "../../internal/process/testdata/moves.c", "-ldl", "-pthread")
	library := testenv.Compile(t, "libmoved.so", "gcc", "-O2", "-shared", "-fPIC", "../../internal/process/testdata/moved.c")
	for way, test := range map[string]struct {
		during      bool
		want, never string
	}{
		"moved":     {true, "moved_outer;moved_inner", "unknown"},
		"clone":     {true, "moved_outer;moved_inner", "unknown"},
		"anonymous": {true, "moved_outer;moved_inner", "jit"},
		"memfd":     {false, "moved_outer;moved_inner", "jit"},
		"shifted":   {true, "[jit+0x", "moved_"},
	} {
		if testenv.BriefInVM() && way != "moved" && way != "anonymous" {
			continue
		}
		t.Run(way, func(t *testing.T) {
			parallel(t)
			cmd := exec.Command(program, library, way)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Kill() // a child of clone ends with it
				_ = cmd.Wait()
			})
			out := bufio.NewReader(pipe)
			if _, err := out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			var pid int
			move := func() {
				if _, err := io.WriteString(in, "go\n"); err != nil {
					t.Fatal(err)
				}
				if _, err := fmt.Fscanf(out, "%d", &pid); err != nil {
					t.Fatal(err)
				}
			}
			if !test.during {
				move()
			}
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			targets := strings.Join(append(strings.Fields(string(children)), strconv.Itoa(cmd.Process.Pid)), ",")
			path := filepath.Join(t.TempDir(), "out.folded")
			measure := command(t, "profile", "-F", "499", "-U", "-o", path, "-p", targets)
			if err := measure.Start(); err != nil {
				t.Fatal(err)
			}
			awaitSampling(t, measure)
			if test.during {
				move()
			}
			testenv.AwaitCPUTime(t, pid, 2*time.Second)
			if r := interrupt(t, measure); r.code != 0 {
				t.Fatalf("exit code %d: %s", r.code, r.stderr)
			}
			all, whole := 0, 0
			for stack, n := range readFolded(t, path) {
				all += n
				if strings.Contains(stack, test.want) {
					whole += n
				}
				if strings.Contains(stack, test.never) {
					t.Errorf("%d samples in %s", n, stack)
				}
			}
			// After code moves, stacks are incomplete until fulgur knows: as long as the machine's load lets it take.
			if least := map[bool]int{true: 100, false: max(100, all/2)}[test.during]; whole < least {
				t.Errorf("%d of %d samples have %s, want at least %d: %v", whole, all, test.want, least, readFolded(t, path))
			}
		})
	}
}
