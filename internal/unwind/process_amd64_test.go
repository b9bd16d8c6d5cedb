package unwind_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/unwindtest"
)

// outcome is how a stack compares to elfutils'.
type outcome struct {
	what    string
	details string
}

func compare(got []unwind.Frame, end unwind.End, want []uint64) outcome {
	pcs := make([]uint64, len(got))
	for i, f := range got {
		pcs[i] = f.PC
	}
	details := fmt.Sprintf("%v (%v), eu-stack %#x", got, end, want)
	n := min(len(pcs), len(want))
	switch {
	case slices.Equal(pcs, want):
		return outcome{"equal, " + end.String(), details}
	case !slices.Equal(pcs[:n], want[:n]):
		return outcome{"different, " + end.String(), details}
	case len(pcs) > n:
		return outcome{"longer than eu-stack's, " + end.String(), details}
	}
	return outcome{"shorter than eu-stack's, " + end.String(), details}
}

// TestProcesses stops programs at random moments and compares their stacks with
// those that elfutils and the kernel's walker find. FULGUR_UNWIND_STACKS is how
// many of each, and brings in more programs.
func TestProcesses(t *testing.T) {
	testenv.Tool(t, "eu-stack")
	k := unwindtest.NewKernel(t, unwindtest.Machine)
	moments, err := strconv.Atoi(os.Getenv("FULGUR_UNWIND_STACKS"))
	for _, p := range unwindtest.Programs {
		if err != nil {
			moments = 5
			if !p.Often {
				continue
			}
		}
		t.Run(p.Name, func(t *testing.T) { checkProcess(t, k, p.Command(t), moments) })
	}
}

func checkProcess(t *testing.T, k *unwindtest.Kernel, command []string, moments int) {
	pid := unwindtest.Start(t, command)
	files := unwindtest.Tables{}
	k.Forget(0)
	outcomes := map[string]int{}
	examples := map[string][]string{}
	for range moments {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		if err := unwindtest.Stop(pid); err != nil {
			t.Fatal(err)
		}
		p, err := unwindtest.Open(files, pid)
		if err != nil {
			t.Fatal(err)
		}
		layout := p.Layout(k)
		got := map[int][]unwind.Frame{}
		before := map[int]unwind.Registers{}
		ends := map[int]unwind.End{}
		for _, tid := range unwindtest.Threads(pid) {
			regs, err := unwindtest.Registers(tid)
			if err != nil {
				testenv.Skip(t, fmt.Sprintf("needs the right to trace processes: %v", err))
			}
			before[tid] = regs
			w := p.Walker()
			memory := &unwindtest.Recorder{From: w.Read, Pages: map[uint64][]byte{}}
			w.Read = memory.Read
			got[tid], ends[tid] = w.Walk(regs, nil, 1024)
			k.Check(t, regs, layout, memory.Pages, got[tid], ends[tid])
		}
		for tid, want := range unwindtest.EUStack(t, pid) {
			o := compare(got[tid], ends[tid], want)
			if after, err := unwindtest.Registers(tid); err != nil || after != before[tid] {
				o.what = "moved meanwhile" // stops are not always kept
			}
			outcomes[o.what]++
			if len(examples[o.what]) < 2 {
				examples[o.what] = append(examples[o.what], o.details)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	for what, n := range outcomes {
		t.Logf("%d %s", n, what)
		if what != "equal, complete" {
			for _, e := range examples[what] {
				t.Log(e)
			}
			if strings.HasPrefix(what, "different") {
				t.Error("stacks contradict each other")
			}
		}
	}
}
