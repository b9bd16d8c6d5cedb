package perfdata

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fulgur/internal/profile"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind/stackend"
)

// perfSample is a sample as perf script prints it and as ReadCallChains reads it.
type perfSample struct {
	pid, tid int
	time     int64 // ns
	event    string
	period   int64
	files    string // of each frame, innermost first
}

// A head of perf script -F pid,tid,time,event,period,ip,dso --ns, and a frame.
var (
	headLine  = regexp.MustCompile(`^\s*(-?\d+)/(-?\d+)\s+(\d+)\.(\d{9}):\s+(\d+)\s+(\S.*?):\s*?(?:\s+([0-9a-f]+) \((.*)\))?$`)
	frameLine = regexp.MustCompile(`^\s+([0-9a-f]+) (?:\S+ )?\((.*)\)$`)
)

// perfScript returns what perf prints about a recording.
func perfScript(t *testing.T, data string, args ...string) (all []perfSample) {
	t.Helper()
	args = append([]string{"script", "--no-inline", "--ns", "-i", data, "-F", "pid,tid,time,event,period,ip,dso"}, args...)
	cmd := testenv.Command(t, testenv.Tool(t, "perf"), args...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("perf script: %v\n%s", err, problems.Bytes())
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if m := frameLine.FindStringSubmatch(line); m != nil && len(all) > 0 {
			last := &all[len(all)-1]
			last.files += perfFile(m[2]) + "\n"
		} else if m := headLine.FindStringSubmatch(line); m != nil {
			number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }
			all = append(all, perfSample{int(number(m[1])), int(number(m[2])), number(m[3])*1e9 + number(m[4]), eventName(m[6]), number(m[5]), ""})
			if m[7] != "" { // a sample without a call chain has its frame in the same line
				all[len(all)-1].files = perfFile(m[8]) + "\n"
			}
		} else if strings.TrimSpace(line) != "" {
			t.Fatalf("perf script printed %q", line)
		}
	}
	return all
}

// perfFile returns the file of a frame. perf gives parts of the kernel names of their own.
func perfFile(dso string) string {
	switch {
	case strings.Contains(dso, "kernel") || strings.HasPrefix(dso, "[bpf") || strings.HasPrefix(dso, "bpf_prog_") || strings.Contains(dso, ".ko") || strings.HasPrefix(dso, "["+"guest"):
		return "kernel"
	case dso == "[unknown]" || strings.HasPrefix(dso, "[vsyscall") || strings.HasPrefix(dso, "//anon") || dso == "[uprobes]" || strings.HasPrefix(dso, "/tmp/perf-") || dso == "[stack]" || dso == "[heap]" || dso == "anon_inode":
		return "?"
	}
	return dso
}

// eventName returns the name of an event without modifiers.
func eventName(name string) string {
	if parts := strings.Split(name, ":"); len(parts) == 2 && regexp.MustCompile(`^[ukhGHpPSDeW]+$`).MatchString(parts[1]) {
		return parts[0]
	}
	return name
}

// chainsOf returns what ReadCallChains reads of a recording.
func chainsOf(t *testing.T, data string) (all []perfSample, c *CallChains) {
	t.Helper()
	var samples []ChainSample
	in, err := Open(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	c, err = in.CallChains(t.Context(), ChainOptions{Each: func(s ChainSample) error { samples = append(samples, s); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Damage) > 0 {
		t.Errorf("got damage %v", c.Damage)
	}
	for _, s := range samples {
		p := perfSample{pid: s.PID, tid: s.TID, time: s.Time, event: eventName(s.Event.Type), period: s.Amount}
		for _, f := range c.Profile.AppendFrames(nil, s.Stack) {
			frame := c.Profile.Frames[f]
			file := c.Profile.Mappings[frame.Mapping].Path
			if frame.Kind == profile.KindKernel {
				file = "kernel"
			}
			if file == "" || file == profile.JITPath {
				file = "?"
			}
			p.files += file + "\n"
		}
		all = append(all, p)
	}
	return all, c
}

// duringExec matches the files of a sample in execve(2): the address of user space is of the old program,
// but the kernel has already reported the new one. perf keeps the old mappings, fulgur does not.
var duringExec = regexp.MustCompile(`^((?:kernel\n)+)[^\n]+\n$`)

// compareSamples compares, whatever the order. perf discards a whole call chain in which a frame pointer
// led to a number like those that begin a part of the chain; fulgur keeps what is before.
func compareSamples(t *testing.T, got, want []perfSample) {
	t.Helper()
	discarded := map[string]bool{}
	head := func(s perfSample) string {
		return fmt.Sprintf("%d/%d %d %s %d", s.pid, s.tid, s.time, s.event, s.period)
	}
	for _, s := range want {
		if s.files == "" {
			discarded[head(s)] = true
		}
	}
	lines := func(list []perfSample) (all []string) {
		for _, s := range list {
			files := duringExec.ReplaceAllString(s.files, "$1")
			if discarded[head(s)] {
				files = ""
			}
			all = append(all, head(s)+" "+strings.ReplaceAll(files, "\n", ";"))
		}
		slices.Sort(all)
		return all
	}
	if len(want) == 0 {
		t.Error("perf script printed no samples")
	}
	if diff := cmp.Diff(lines(want), lines(got)); diff != "" {
		t.Errorf("samples (-perf +fulgur):\n%.4000s", diff)
	}
}

// perfRecord records a program, and returns the file or folder.
func perfRecord(t *testing.T, args ...string) string {
	t.Helper()
	testenv.Slow(t)
	data := filepath.Join(t.TempDir(), "perf.data")
	args = append([]string{"record", "-q", "-o", data}, args...)
	out, err := testenv.Command(t, testenv.Tool(t, "perf"), args...).CombinedOutput()
	if err != nil {
		testenv.Skip(t, "needs permission for perf %v: %v: %.200s", args, err, out)
	}
	return data
}

// Recordings of all kinds have the samples that perf script prints.
func TestAgainstPerf(t *testing.T) {
	work := "for i in 1 2 3; do ls -R /etc >/dev/null; done"
	for name, args := range map[string][]string{
		"frame pointers": {"-g", "-e", "cpu-clock"},
		"period":         {"-e", "cpu-clock", "-c", "700000", "-g"},
		"tracepoints":    {"-g", "-e", "sched:sched_switch,sched:sched_process_exec,cpu-clock"},
		"modifiers":      {"-e", "cpu-clock:u,cpu-clock:k,page-faults"},
		"group":          {"-e", "{cpu-clock,task-clock,page-faults}:S"},
		"two groups":     {"-g", "-e", "{cpu-clock,page-faults}:S,{task-clock,context-switches}:S"},
		"read":           {"-i", "-e", "cpu-clock:S"},
		"compressed":     {"-z", "-g", "-e", "cpu-clock"},
		"threads":        {"--threads", "-a", "-e", "cpu-clock,page-faults"},
		"many fields":    {"-d", "--phys-data", "--sample-cpu", "--weight", "-s", "-T", "-e", "cpu-clock", "--all-cgroups", "--namespaces"},
		"raw":            {"-R", "-e", "sched:sched_switch", "-g"},
	} {
		t.Run(name, func(t *testing.T) {
			data := perfRecord(t, append(args, "--", "sh", "-c", work)...)
			got, _ := chainsOf(t, data)
			compareSamples(t, got, perfScript(t, data))
		})
	}
}

// A pipe has the names of events in other records than a file.
func TestPipeAgainstPerf(t *testing.T) {
	cmd := testenv.Command(t, testenv.Tool(t, "perf"), "record", "-q", "-o", "-", "-e", "sched:sched_switch,cpu-clock", "-g", "--", "sh", "-c", "ls -R /etc >/dev/null; ls -R /etc >/dev/null")
	out, err := cmd.Output()
	if err != nil {
		testenv.Skip(t, "needs permission for perf record: %v", err)
	}
	data := writeFile(t, filepath.Join(t.TempDir(), "perf.data"), out)
	got, c := chainsOf(t, data)
	compareSamples(t, got, perfScript(t, data))
	if c.Profile.Meta.Kernel == "" || !slices.ContainsFunc(got, func(s perfSample) bool { return s.event == "sched:sched_switch" }) {
		t.Errorf("got no tracepoint, or no kernel release %q", c.Profile.Meta.Kernel)
	}
}

// set sets a field of the event.
func (b *builder) set(offset int, v uint64) { binary.NativeEndian.PutUint64(b.attr[offset:], v) }

// Branch records in call stack mode have the user callers.
func TestLBRCallGraph(t *testing.T) {
	b := newChainBuilder()
	b.sampleOf(chainSampleType | unix.PERF_SAMPLE_BRANCH_STACK)
	b.set(offsetBranchType, unix.PERF_SAMPLE_BRANCH_USER|unix.PERF_SAMPLE_BRANCH_CALL_STACK|unix.PERF_SAMPLE_BRANCH_HW_INDEX)
	b.exec(7, "app")
	b.mmap2(7, 0x400000, 0x10000, 0, "/bin/app")
	sample := func(mode uint16, ip uint64, chain []uint64, branches ...uint64) {
		b.time += 1000
		body := append(words(ip, int32(7), int32(7), b.time, uint64(10), uint64(len(chain))), words(chain)...)
		body = append(body, words(uint64(len(branches)/2), ^uint64(0))...)
		for i := 0; i < len(branches); i += 2 {
			body = append(body, words(branches[i], branches[i+1], uint64(0))...)
		}
		b.records = append(b.records, recordOf(unix.PERF_RECORD_SAMPLE, mode, body))
	}
	sample(modeUser, 0x400110, []uint64{contextUser, 0x400110, 0xbad}, 0x400205, 0x400100, 0x400305, 0x400200)
	sample(modeKernel, kernelStart+1, []uint64{contextKernel, kernelStart + 1, kernelStart + 9, contextUser, 0x400110, 0xbad}, 0x400205, 0x400100)
	sample(modeUser, 0x400110, []uint64{contextUser, 0x400110, 0x400400}) // a thread that has called nothing
	want := []string{
		"app 7: [app+0x305];[app+0x205];[app+0x110] [1 10]",
		"app 7: [app+0x205];[app+0x100];[kernel.kallsyms+0xffffffff81000009];[kernel.kallsyms+0xffffffff81000001] [1 10]",
		"app 7: [app+0x400];[app+0x110] [1 10]",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, stacks(readChains(t, b.file(b.plain())).Profile)); diff != "" {
		t.Errorf("stacks (-want +got):\n%s", diff)
	}
}

// Deferred user call chains belong to the samples with the same cookie and thread, whichever the file
// has first.
func TestDeferred(t *testing.T) {
	b := newChainBuilder()
	b.set(offsetFlags, binary.NativeEndian.Uint64(b.attr[offsetFlags:])|attrDeferred|attrDeferred<<1)
	b.exec(7, "app")
	b.mmap2(7, 0x400000, 0x10000, 0, "/bin/app")
	sample := func(tid int32, cookie uint64, kernel uint64) {
		b.chain(7, tid, modeKernel, contextKernel, kernelStart+kernel, contextUserDeferred, cookie)
	}
	user := func(tid int32, cookie uint64, chain ...uint64) {
		b.time += 1000
		b.records = append(b.records, recordOf(recordCallchainDeferred, modeUser, append(words(cookie, uint64(len(chain)), chain), words(int32(7), tid, b.time)...)))
	}
	sample(7, 1, 1)
	sample(7, 1, 2)
	sample(8, 1, 3)                // another thread
	user(7, 1, 0x400010, 0x400020) // of both
	sample(7, 1, 4)                // later in the file
	user(8, 2, 0x400030)           // before its sample
	sample(8, 2, 5)
	b.chain(7, 7, modeUser, contextUser, 0x400040) // not deferred
	c := readChains(t, b.file(b.plain()))
	want := []string{
		"[unknown] 7: [kernel.kallsyms+0xffffffff81000003] [1 10000]",
		"[unknown] 7: [app+0x30];[kernel.kallsyms+0xffffffff81000005] [1 10000]",
		"app 7: [app+0x20];[app+0x10];[kernel.kallsyms+0xffffffff81000001] [1 10000]",
		"app 7: [app+0x20];[app+0x10];[kernel.kallsyms+0xffffffff81000002] [1 10000]",
		"app 7: [app+0x20];[app+0x10];[kernel.kallsyms+0xffffffff81000004] [1 10000]",
		"app 7: [app+0x40] [1 10000]",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, stacks(c.Profile)); diff != "" {
		t.Errorf("stacks (-want +got):\n%s", diff)
	}
	missing := 0
	for _, s := range c.Profile.Samples {
		if s.End == stackend.Deferred {
			missing++
		}
	}
	if missing != 1 {
		t.Errorf("got %d samples without user stack, want 1", missing)
	}
}

// A field that is not known makes records longer, so all that follows would be read wrong.
func TestUnknownBits(t *testing.T) {
	for offset, bit := range map[int]int{offsetSampleType: 25, offsetReadFormat: 5, offsetBranchType: 20} {
		b := newChainBuilder()
		b.chain(7, 7, modeUser, contextUser, 0x400040)
		b.set(offset, binary.NativeEndian.Uint64(b.attr[offset:])|1<<bit)
		for _, data := range [][]byte{b.file(b.plain()), b.pipe(b.plain())} {
			_, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{})
			if want := fmt.Sprintf("of bit %d,", bit); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("offset %d: got error %v, want %q", offset, err, want)
			}
		}
	}
}

// Records of unknown types are skipped by their size, and counted.
func TestUnknownRecords(t *testing.T) {
	b := newChainBuilder()
	for typ := range uint32(100) {
		switch typ {
		case unix.PERF_RECORD_SAMPLE, recordHeaderTracingData, recordAuxtrace, recordCompressed, recordCompressed2, recordCallchainDeferred:
			continue // have contents
		}
		if !isKnown(typ) {
			b.records = append(b.records, recordOf(typ, 0, make([]byte, 16)))
		}
	}
	b.chain(7, 7, modeUser, contextUser, 0x400040)
	c := readChains(t, b.file(b.plain()))
	if got := fmt.Sprint(c.Damage); len(c.Damage) != 1 || !strings.Contains(got, "55 records left out that only a newer perf than 7.2 knows, the first of type 0") || len(c.Profile.Samples) != 1 {
		t.Errorf("got %s", got)
	}
}

// A trace of instructions is left out, and its size is reported.
func TestTraceOfInstructions(t *testing.T) {
	b := newChainBuilder()
	for _, size := range []uint64{24, 4096} {
		// AUXTRACE has the size of what follows it, an offset, a reference, an index, a thread, a CPU.
		auxtrace := recordOf(recordAuxtrace, 0, words(size, uint64(0), uint64(0), uint32(0), uint32(7), uint32(0), uint32(0)))
		b.records = append(b.records, append(auxtrace, make([]byte, size)...))
	}
	b.chain(7, 7, modeUser, contextUser, 0x400040)
	c := readChains(t, b.file(b.plain()))
	if got := fmt.Sprint(c.Damage); len(c.Damage) != 1 || !strings.Contains(got, "4120 bytes of a trace of instructions") || len(c.Profile.Samples) != 1 {
		t.Errorf("got %s and %d samples", got, len(c.Profile.Samples))
	}
}
