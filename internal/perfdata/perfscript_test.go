package perfdata

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/testenv"
)

// tally counts samples by the facts that the text of perf script has in some list of fields.
type tally struct {
	Events, Comms, PIDs, Depths map[string]int64
}

// tallyOf counts the samples of a profile.
func tallyOf(p *profile.Profile) tally {
	n := tally{map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}}
	for _, s := range p.Samples {
		depth := len(p.AppendFrames(nil, s.Stack))
		for i, value := range s.Values {
			event, ok := strings.CutSuffix(p.ValueTypes[i].Type, "samples")
			if !ok || value == 0 {
				continue
			}
			if event = strings.TrimSpace(event); event == "" && i+1 < len(p.ValueTypes) {
				event = p.ValueTypes[i+1].Type // the only event
			}
			n.Events[eventName(event)] += value
			n.Comms[p.Tasks[s.Task].Comm] += value
			n.PIDs[fmt.Sprint(p.Tasks[s.Task].PID)] += value
			n.Depths[fmt.Sprint(depth)] += value
		}
	}
	return n
}

// total returns the number of all samples.
func (n tally) total() (sum int64) {
	for _, v := range n.Events {
		sum += v
	}
	return sum
}

// The text of a recording, whatever its fields, has the samples that the recording has.
func TestTextAgainstData(t *testing.T) {
	perf := testenv.Tool(t, "perf")
	work := "ls -R /etc >/dev/null; ls -R /etc >/dev/null"
	for name, args := range map[string][]string{
		"frame pointers": {"-g", "-e", "cpu-clock"},
		"copied stacks":  {"--call-graph", "dwarf,1024", "-F", "200", "-e", "cpu-clock"},
		"no chains":      {"-e", "cpu-clock,page-faults"},
		"tracepoints":    {"-g", "-e", "sched:sched_process_fork,sched:sched_process_exec,sched:sched_process_exit"}, // no names of other tasks, which may have line ends
		"events":         {"-g", "-e", "{cpu-clock,page-faults}:S,context-switches,sched:sched_process_exec"},
		"no CPUs":        {"-g", "-e", "cpu-clock,page-faults"},
		"mixed CPUs":     {"-g", "-e", "cpu-clock,sched:sched_process_exec"}, // those of tracepoints have one
	} {
		t.Run(name, func(t *testing.T) {
			hasCPU := !strings.HasSuffix(name, " CPUs")
			if hasCPU {
				args = append(args, "--sample-cpu")
			}
			data := perfRecord(t, append(args, "--", "sh", "-c", work)...)
			_, c := chainsOf(t, data)
			want := tallyOf(c.Profile)
			byPerf := map[string]int64{}
			want.Depths = map[string]int64{} // perf shows no stack if it misreads a frame pointer as a mark of the kernel
			for _, s := range perfScript(t, data) {
				byPerf[s.event]++
				want.Depths[fmt.Sprint(strings.Count(s.files, "\n"))]++
			}
			if diff := cmp.Diff(byPerf, want.Events); diff != "" {
				t.Errorf("samples of perf.data (-perf +fulgur):\n%s", diff)
			}
			for _, fields := range []string{
				"", "-L", "-F +period", "-F -time", "-F -cpu,-time", "-F -comm", "-F -event", "-F -time,-period,-event",
				"-F comm,pid,tid,cpu,time,event,ip,sym,dso", "-F comm,pid,tid,time,event,period,ip,sym,symoff,dso",
				"-F comm,tid,event,ip,sym", "-F comm,tid,cpu,time,ip,dso", "-F comm,pid,tid,ip,sym",
				"-F pid,tid,event,period,ip,sym", "-F comm,pid,tid,time,event",
			} {
				if !hasCPU && strings.Contains(fields, ",cpu,") {
					continue // perf refuses it
				}
				cmd := testenv.Command(t, perf, append([]string{"script", "--no-inline", "-i", data}, strings.Fields(fields)...)...)
				var problems bytes.Buffer
				cmd.Stderr = &problems
				text, err := cmd.Output()
				if err != nil {
					t.Fatalf("perf script %s: %v\n%s", fields, err, problems.Bytes())
				}
				p, format, err := decode.Read(t.Context(), bytes.NewReader(text), "text")
				if err != nil || format != decode.PerfScript {
					t.Errorf("%q: read as %s: %v", fields, format, err)
					continue
				}
				got, expected := tallyOf(p), tally{maps.Clone(want.Events), want.Comms, want.PIDs, want.Depths}
				list := strings.TrimPrefix(fields, "-F ")
				has := func(field string) bool {
					return !strings.Contains(list, "-"+field) && (!strings.Contains(list, ",") || list[0] == '-' || strings.Contains(list, field))
				}
				if !has("event") {
					got.Events, expected.Events = map[string]int64{"all": got.total()}, map[string]int64{"all": expected.total()}
				}
				if !has("comm") {
					got.Comms, expected.Comms = nil, nil
				}
				if !strings.Contains(list, "pid,") {
					got.PIDs, expected.PIDs = nil, nil
				}
				changed := strings.HasPrefix(list, "-") || strings.HasPrefix(list, "+") // perf then shows no stacks of tracepoints
				if name == "copied stacks" || !changed && strings.HasSuffix(list, ",event") || changed && strings.Contains(strings.Join(args, " "), "sched:") {
					got.Depths, expected.Depths = nil, nil // perf unwinds them itself, or shows none
				}
				if diff := cmp.Diff(expected, got); diff != "" || p.Losses[profile.LossUnread] > 0 {
					t.Errorf("perf script %s: %d lines unread (-data +text):\n%s\n%.1500s", fields, p.Losses[profile.LossUnread], diff, text)
				}
			}
		})
	}
}

// Branches on the line of a sample are no part of its only frame.
func TestTextOfBranches(t *testing.T) {
	perf := testenv.Tool(t, "perf")
	data := filepath.Join(t.TempDir(), "perf.data")
	writeFile(t, data, gunzip(t, "propeller_sample_1.perfdata1"))
	script := func(fields string) []byte { return perfFields(t, perf, data, fields) }
	want := map[uint64]int64{}
	for _, word := range strings.Fields(string(script("ip"))) {
		address, err := strconv.ParseUint(word, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		want[address]++
	}
	for _, kind := range []string{"brstack", "brstacksym", "brstackoff"} {
		for _, fields := range []string{"ip", "ip,sym", "ip,dso", "ip,sym,dso", "time,ip", "comm,tid,ip,sym", "comm,tid,time,event,ip,sym,dso"} {
			fields += "," + kind
			p, format, err := decode.Read(t.Context(), bytes.NewReader(script(fields)), "text")
			if err != nil || format != decode.PerfScript {
				t.Errorf("%s: read as %s: %v", fields, format, err)
				continue
			}
			got := map[uint64]int64{}
			for _, s := range p.Samples {
				for _, f := range p.AppendFrames(nil, s.Stack) {
					if name := p.Functions[p.Frames[f].Function].Name; strings.Contains(name, "/") {
						t.Errorf("%s: got a function %q", fields, name)
					}
					got[p.Frames[f].Address] += s.Values[0]
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: addresses (-perf +text):\n%s", fields, diff)
			}
		}
	}
}

// Registers, bytes, addresses and sizes of pages on the line of a sample are no part of its only frame.
func TestTextOfFields(t *testing.T) {
	perf := testenv.Tool(t, "perf")
	data := perfRecord(t, "-e", "cpu-clock", "-F", "999", "-d", "--user-regs=ip,sp", "--intr-regs=ax,bx", "--code-page-size", "--data-page-size", "--phys-data", "--", "ls", "-R", "/usr/lib")
	stacks := func(fields string) map[string]int64 {
		p, format, err := decode.Read(t.Context(), bytes.NewReader(perfFields(t, perf, data, fields)), "text")
		if err != nil || format != decode.PerfScript {
			t.Fatalf("%s: read as %s: %v", fields, format, err)
		}
		got := map[string]int64{}
		for _, s := range p.Samples {
			stack := p.Tasks[s.Task].Comm
			for _, f := range p.AppendFrames(nil, s.Stack) {
				stack += fmt.Sprintf(";%s %#x", p.Functions[p.Frames[f].Function].Name, p.Frames[f].Address)
			}
			got[stack] += s.Values[0]
		}
		return got
	}
	for _, fields := range []string{"ip", "ip,sym", "ip,sym,symoff", "ip,sym,dso", "time,ip", "comm,tid,time,ip,sym", "comm,tid,time,event,ip,sym"} {
		want := stacks(fields)
		for _, more := range []string{"iregs", "uregs", "iregs,uregs", "insn", "insn,insnlen", "phys_addr", "code_page_size", "data_page_size,code_page_size", "phys_addr,data_page_size"} {
			if diff := cmp.Diff(want, stacks(fields+","+more)); diff != "" {
				t.Errorf("%s with %s:\n%s", fields, more, diff)
			}
		}
	}
}

// perfFields returns the text of perf script with fields.
func perfFields(t *testing.T, perf, data, fields string) []byte {
	t.Helper()
	text, err := testenv.Command(t, perf, "script", "-i", data, "-F", fields).Output()
	if err != nil {
		t.Fatalf("perf script -F %s: %v", fields, err)
	}
	return text
}
