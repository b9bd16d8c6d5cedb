package unwind_test

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
	"fulgur/internal/unwind/unwindtest"
)

// TestProcesses stops programs at random moments and compares their stacks with the stacks of
// debuggers and the kernel's walker. FULGUR_UNWIND_STACKS is the number of stacks per
// program, and adds programs.
func TestProcesses(t *testing.T) {
	testenv.Slow(t)
	for _, name := range []string{"eu-stack", "gdb"} {
		testenv.Tool(t, name)
	}
	k := unwindtest.NewKernel(t, unwindtest.Machine)
	moments, err := strconv.Atoi(os.Getenv("FULGUR_UNWIND_STACKS"))
	var sum unwindtest.Tally
	if err != nil {
		moments = 5
	}
	for _, p := range unwindtest.Selected(err == nil) {
		t.Run(p.Name, func(t *testing.T) { sum.Merge(checkProcess(t, k, &p, moments)) })
	}
	if sum.Stacks > 0 && sum.Confirmed == 0 {
		t.Error("got no stack that equals a debugger's")
	}
	t.Log(&sum)
}

func checkProcess(t *testing.T, k *unwindtest.Kernel, program *unwindtest.Program, moments int) (sum unwindtest.Tally) {
	command := program.Command(t)
	cut := program.Cut(t, command[0])
	pid := unwindtest.Start(t, command)
	debuggers := unwindtest.Debuggers(t)
	files := unwindtest.Tables{}
	k.Forget(0)
	moved := 0
	ends := map[stackend.End]int{}
	examples := map[string]int{}
	for range moments {
		unwindtest.Resume(t, pid)
		if err := unwindtest.Stop(pid); err != nil {
			t.Fatal(err)
		}
		p, err := unwindtest.Open(files, pid)
		if err != nil {
			t.Fatal(err)
		}
		layout := p.Layout(k)
		stacks := map[int]stack{}
		for _, tid := range unwindtest.Threads(pid) {
			regs, err := unwindtest.Registers(tid)
			if err != nil {
				testenv.Skip(t, "needs the right to trace processes: %v", err)
			}
			w := p.Walker()
			memory := &unwindtest.Recorder{From: w.Read, Pages: map[uint64][]byte{}}
			w.Read = memory.Read
			frames, end := w.Walk(regs, nil, 1024)
			stacks[tid] = stack{regs, frames, end, map[string][]uint64{}}
			k.Check(t, regs, layout, memory.Pages, frames, end)
		}
		for _, d := range debuggers {
			found := d.Stacks(t, pid)
			for tid, s := range stacks {
				s.theirs[d.Name] = found[tid]
			}
		}
		for tid, s := range stacks {
			if after, err := unwindtest.Registers(tid); err != nil || after != s.regs {
				moved++ // the thread did not stay stopped
				continue
			}
			ends[s.end]++
			results := sum.Add(cut(s.frames, s.theirs))
			all := slices.Collect(maps.Values(results))
			if !program.Guessed && slices.Contains(all, unwindtest.Different) && !slices.Contains(all, unwindtest.Equal) {
				t.Errorf("got contradictory stacks: %v (%v), %#x", s.frames, s.end, s.theirs)
			}
			for name, how := range results {
				if how == unwindtest.Equal && s.end == stackend.Complete {
					continue
				}
				if key := fmt.Sprint(how, name, s.end); examples[key] < 2 {
					examples[key]++
					t.Logf("%v (%v) is %s %s's %#x", s.frames, s.end, how, name, s.theirs[name])
				}
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Log(&sum, ends, "and moved during the walk:", moved)
	return sum
}

// TestGoCallers compares the stacks of stopped Go programs with those that the programs found themselves.
func TestGoCallers(t *testing.T) {
	testenv.Slow(t)
	t.Setenv("GODEBUG", "asyncpreemptoff=1") // it would interrupt the function that the program stays in
	k := unwindtest.NewKernel(t, unwindtest.Machine)
	for _, flags := range [][]string{nil, {"-buildmode=pie"}, {"-ldflags=-s -w"}} {
		program := unwindtest.Build(t, "golang", flags...)
		for _, path := range []string{"nested", "deferred", "panicking", "reflected", "goroutine"} {
			t.Run(path+strings.Join(flags, " "), func(t *testing.T) { checkCallers(t, k, program, path) })
		}
	}
}

func checkCallers(t *testing.T, k *unwindtest.Kernel, program, path string) {
	cmd := exec.Command(program, path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var want []uint64
	for _, field := range strings.Fields(line) {
		pc, err := strconv.ParseUint(field, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, pc)
	}
	pid := cmd.Process.Pid
	testenv.AwaitCPUTime(t, pid, 100*time.Millisecond) // in the function to stay in
	if err := unwindtest.Stop(pid); err != nil {
		t.Fatal(err)
	}
	p, err := unwindtest.Open(unwindtest.Tables{}, pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	k.Forget(0)
	layout := p.Layout(k)
	var all []string
	for _, tid := range unwindtest.Threads(pid) {
		regs, err := unwindtest.Registers(tid)
		if err != nil {
			testenv.Skip(t, "needs the right to trace processes: %v", err)
		}
		w := p.Walker()
		memory := &unwindtest.Recorder{From: w.Read, Pages: map[uint64][]byte{}}
		w.Read = memory.Read
		frames, end := w.Walk(regs, nil, 1024)
		k.Check(t, regs, layout, memory.Pages, frames, end)
		if end == stackend.Complete && isStackOf(frames, want) {
			return
		}
		all = append(all, fmt.Sprint(frames, " ", end))
	}
	t.Errorf("got no stack of the function that the program stays in, point and %#x:\n%s", want, strings.Join(all, "\n"))
}

// TestContexts walks stacks of Boost's contexts, which end where a context begins. gdb continues
// beyond.
func TestContexts(t *testing.T) {
	testenv.Slow(t)
	testenv.File(t, "/usr/include/boost/context/fiber.hpp")
	testenv.Tool(t, "gdb")
	gdb := unwindtest.Debuggers(t)
	gdb = gdb[slices.IndexFunc(gdb, func(d unwindtest.Debugger) bool { return d.Name == "gdb" }):]
	k := unwindtest.NewKernel(t, unwindtest.Machine)
	for _, library := range []string{"-lboost_context", "-l:libboost_context.a"} {
		program := filepath.Join(t.TempDir(), "contexts")
		build := exec.Command(testenv.Tool(t, "g++"), "-O2", "-o", program, filepath.Join("testdata", "contexts.cc"), library)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		pid := unwindtest.Start(t, []string{program})
		testenv.AwaitCPUTime(t, pid, 100*time.Millisecond) // in the contexts
		files := unwindtest.Tables{}
		k.Forget(0)
		for range 5 {
			unwindtest.Resume(t, pid)
			if err := unwindtest.Stop(pid); err != nil {
				t.Fatal(err)
			}
			p, err := unwindtest.Open(files, pid)
			if err != nil {
				t.Fatal(err)
			}
			regs, err := unwindtest.Registers(pid)
			if err != nil {
				testenv.Skip(t, "needs the right to trace processes: %v", err)
			}
			w := p.Walker()
			memory := &unwindtest.Recorder{From: w.Read, Pages: map[uint64][]byte{}}
			w.Read = memory.Read
			frames, end := w.Walk(regs, nil, 1024)
			k.Check(t, regs, p.Layout(k), memory.Pages, frames, end)
			theirs := gdb[0].Stacks(t, pid)[pid]
			how := unwindtest.Compare(frames, theirs)
			if end != stackend.Complete || len(frames) < 4 || how != unwindtest.Equal && how != unwindtest.Shorter {
				t.Errorf("%s: got %v (%v), %s gdb's %#x; want its beginning, complete", library, frames, end, how, theirs)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// isStackOf reports whether frames are those of two functions and their callers. The list of callers
// lacks wrappers that the compiler made. Where a function was interrupted by a fault, it has the next
// byte.
func isStackOf(frames []unwind.Frame, callers []uint64) bool {
	if len(frames) < 2 {
		return false
	}
	for i, f := range frames[2:] {
		if len(callers) > 0 && (f.PC == callers[0] || f.PC+1 == callers[0]) {
			callers = callers[1:]
		} else if i == 0 {
			return false // no wrapper calls the function
		}
	}
	return len(callers) == 0
}

// stack holds the results of the walker and the others for a thread.
type stack struct {
	regs   unwind.Registers
	frames []unwind.Frame
	end    stackend.End
	theirs map[string][]uint64
}
