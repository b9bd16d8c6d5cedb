package main

import (
	"bytes"
	"cmp"
	"encoding/json"
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

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/testenv"
	"fulgur/test/rig/pmu"
)

// workloadVar makes the test binary the sampled process.
const workloadVar = "BOLT_COST_WORKLOAD"

func init() {
	if os.Getenv(workloadVar) == "" {
		return
	}
	// In the main thread, because the peer samples no other thread.
	runtime.LockOSThread()
	for {
		sink++
	}
}

var sink int

// The number of samples, which are windows of 32 records.
const (
	windows   = 20_000
	window    = 32
	frequency = 4000
	rounds    = 1
)

// tool profiles a process until SIGINT.
type tool struct {
	name string
	argv func(pid int, out string) []string
	// taken returns the numbers of samples with branches and of lost samples.
	taken func(t *testing.T, out string, stderr []byte) (samples, lost uint64)
}

// tools returns all tools. The first one is fulgur.
func tools(t *testing.T) []tool {
	hz := strconv.Itoa(frequency)
	return []tool{
		{"fulgur bolt", func(pid int, out string) []string {
			return []string{testenv.Tool(t, "fulgur"), "bolt", "-p", strconv.Itoa(pid), "-f", hz, "--llvm", "22", "--stats", "json", "-o", out, "600"}
		}, func(t *testing.T, _ string, stderr []byte) (uint64, uint64) { return summary(t, stderr) }},
		{"perf record -b", func(pid int, out string) []string {
			return []string{testenv.Tool(t, "perf"), "record", "-q", "-b", "-e", "cycles:u", "-F", hz, "-p", strconv.Itoa(pid), "-o", out}
		}, func(t *testing.T, out string, _ []byte) (uint64, uint64) {
			cmd := exec.Command(testenv.Tool(t, "fulgur"), "convert", "--format", "preagg", "--llvm", "22", "--stats", "json", "--binary", os.Args[0], out)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("fulgur convert: %v\n%s", err, &stderr)
			}
			return summary(t, stderr.Bytes())
		}},
		{"ring and map", func(pid int, _ string) []string {
			return []string{testenv.Tool(t, "peer"), "/bin/peer.bpf.o", strconv.Itoa(pid), hz}
		}, func(t *testing.T, _ string, stderr []byte) (samples, lost uint64) {
			if _, err := fmt.Sscanf(string(stderr), "%d samples, %d lost", &samples, &lost); err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			return samples, lost
		}},
	}
}

// summary parses the output of fulgur --stats json.
func summary(t *testing.T, stderr []byte) (samples, lost uint64) {
	var s struct {
		Samples uint64
		Lost    []struct {
			Cause string
			Count uint64
		}
	}
	if err := json.Unmarshal(stderr, &s); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, l := range s.Lost {
		// Samples that the kernel's timer skipped have no window.
		if !strings.Contains(l.Cause, "skipped") {
			lost += l.Count
		}
	}
	return s.Samples, lost
}

// cost is the cost of a tool.
type cost struct {
	samples, lost  uint64
	start          time.Duration // CPU time, user and system, until it samples
	sampling       time.Duration // CPU time from then on
	bpf            time.Duration // run time of its BPF programs
	resident, maps uint64        // peak, bytes
	anonymous      uint64        // peak of the resident memory that is not the program's file
	output         int64         // bytes
}

// TestCost prints a table of each tool's cost for the same branches.
func TestCost(t *testing.T) {
	testenv.Given(t, "FULGUR_BENCH") // go run ./bench/boltcost sets it
	// The kernel would lower the rate in an emulated machine.
	if err := os.WriteFile("/proc/sys/kernel/perf_cpu_time_max_percent", []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	workload := exec.Command(os.Args[0])
	workload.Env = append(os.Environ(), workloadVar+"=1")
	if err := workload.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = workload.Process.Kill()
		_ = workload.Wait()
	}()
	records := branches()
	costs := map[string][]cost{}
	all := tools(t)
	for range rounds {
		for _, tool := range all {
			pmu.Load(t, pmu.Options{NMI: true})
			if err := pmu.Add(pmu.Queue{PID: workload.Process.Pid, Window: window, Records: records}); err != nil {
				t.Fatal(err)
			}
			costs[tool.name] = append(costs[tool.name], measure(t, tool, workload.Process.Pid))
		}
	}
	var b strings.Builder
	fmt.Fprintln(&b, "table: | | samples | lost | CPU s: start | CPU s: sampling | BPF s | peak resident MB | anonymous MB | BPF maps MB | output KB |")
	fmt.Fprintln(&b, "table: |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, tool := range all {
		c := median(costs[tool.name])
		fmt.Fprintf(&b, "table: | %s | %d | %d | %.2f | %.2f | %.2f | %.1f | %.1f | %.1f | %.0f |\n", tool.name, c.samples, c.lost,
			c.start.Seconds(), c.sampling.Seconds(), c.bpf.Seconds(),
			float64(c.resident)/(1<<20), float64(c.anonymous)/(1<<20), float64(c.maps)/(1<<20), float64(c.output)/(1<<10))
	}
	fmt.Print(b.String())
}

// branches generates records: walks through a program of 3000 branches. Some branches
// have two targets, and some run more often.
func branches() []pmu.Record {
	const blocks, size = 3000, 64
	base := uint64(0x401000) // the address where Go links code
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.2, 8, blocks-1)
	type block struct{ taken, other uint64 }
	program := make([]block, blocks)
	for i := range program {
		program[i] = block{random.Uint64N(blocks), random.Uint64N(blocks)}
	}
	records := make([]pmu.Record, windows*window)
	for w := range slices.Chunk(records, window) {
		at := zipf.Uint64()
		for i := range w {
			to := program[at].taken
			flags := uint64(bolt.FlagPredicted)
			if random.Uint64N(20) == 0 {
				to, flags = program[at].other, bolt.FlagMispredicted
			}
			// The newest record comes first.
			w[len(w)-1-i] = pmu.Record{From: base + at*size + size - 4, To: base + to*size, Flags: flags}
			at = to
		}
	}
	return records
}

// measure runs a tool on all windows.
func measure(t *testing.T, tool tool, pid int) cost {
	out := filepath.Join(t.TempDir(), "out.preagg")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	argv := tool.argv(pid, out)
	cmd := exec.Command(argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = f, &stderr
	before := lastIDs(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // perf exits by the signal
		close(exited)
	}()
	var c cost
	stopped := false
	for running := true; running; {
		select {
		case <-exited:
			running = false
			continue
		case <-time.After(20 * time.Millisecond):
		}
		c.resident = max(c.resident, memory(cmd.Process.Pid, "VmHWM"))
		c.anonymous = max(c.anonymous, memory(cmd.Process.Pid, "RssAnon"))
		status, err := pmu.ReadStatus()
		if err != nil {
			t.Fatal(err)
		}
		if c.start == 0 && status.Events > 0 {
			c.start = cpuTime(t, cmd.Process.Pid)
		}
		if !stopped && !status.Left() {
			stopped = true
			c.bpf, c.maps = programs(t, before)
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.sampling = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() - c.start
	info, err := os.Stat(out)
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, &stderr)
	}
	c.output = info.Size()
	c.samples, c.lost = tool.taken(t, out, stderr.Bytes())
	t.Logf("%s: %+v", tool.name, c)
	return c
}

// cpuTime returns the CPU time of a process so far, to 10 ms.
func cpuTime(t *testing.T, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// memory returns a field of a process's memory status, in bytes, 0 if the process has
// exited. VmHWM is the peak resident memory.
func memory(pid int, name string) uint64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, value, _ := strings.Cut(string(status), "\n"+name+":")
	fields := strings.Fields(value)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.ParseUint(fields[0], 10, 64)
	return kilobytes << 10
}

// ids holds the highest IDs that the kernel has assigned.
type ids struct {
	program ebpf.ProgramID
	object  ebpf.MapID
}

// lastIDs returns the current highest IDs.
func lastIDs(t *testing.T) (last ids) {
	eachSince(t, last, func(p ebpf.ProgramID) { last.program = p }, func(m ebpf.MapID) { last.object = m })
	return last
}

// programs returns the run time of all BPF programs that are newer than last,
// and the size of all newer maps.
func programs(t *testing.T, last ids) (run time.Duration, maps uint64) {
	eachSince(t, last, func(id ebpf.ProgramID) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		stats, err := p.Stats()
		if err != nil {
			t.Fatal(err)
		}
		run += stats.Runtime
	}, func(id ebpf.MapID) {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		locked, _ := info.Memlock()
		maps += locked
	})
	return run, maps
}

// eachSince calls functions for all BPF programs and maps newer than last.
func eachSince(t *testing.T, last ids, program func(ebpf.ProgramID), object func(ebpf.MapID)) {
	for {
		next, err := ebpf.ProgramGetNextID(last.program)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last.program = next
		program(next)
	}
	for {
		next, err := ebpf.MapGetNextID(last.object)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last.object = next
		object(next)
	}
}

// median returns the median of each figure.
func median(costs []cost) cost {
	return cost{
		samples:   middle(costs, func(c cost) uint64 { return c.samples }),
		lost:      middle(costs, func(c cost) uint64 { return c.lost }),
		start:     middle(costs, func(c cost) time.Duration { return c.start }),
		sampling:  middle(costs, func(c cost) time.Duration { return c.sampling }),
		bpf:       middle(costs, func(c cost) time.Duration { return c.bpf }),
		resident:  middle(costs, func(c cost) uint64 { return c.resident }),
		anonymous: middle(costs, func(c cost) uint64 { return c.anonymous }),
		maps:      middle(costs, func(c cost) uint64 { return c.maps }),
		output:    middle(costs, func(c cost) int64 { return c.output }),
	}
}

func middle[T cmp.Ordered](costs []cost, figure func(cost) T) T {
	var figures []T
	for _, c := range costs {
		figures = append(figures, figure(c))
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}
