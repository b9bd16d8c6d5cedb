package decode

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// A frame is read as it was written, whatever its function is called.
func FuzzParseFrame(f *testing.F) {
	f.Add(uint64(1), "f", uint64(16), "/bin/x")
	f.Add(uint64(0xffffffff81000000), "(anonymous namespace)::f(int)", uint64(0), "/tmp/a b/lib (1).so (deleted)")
	f.Add(uint64(0xadd), "operator new (unsigned long)", uint64(7), "[kernel.kallsyms]")
	f.Fuzz(func(t *testing.T, address uint64, name string, offset uint64, file string) {
		if strings.TrimSpace(name) != name || name == "" || strings.ContainsAny(name, "\r\n\f") || file == "" || strings.ContainsAny(file, "\r\n\f") ||
			!isBalanced(file) || strings.HasSuffix(file, " ") || strings.HasSuffix(file, "\t") || file == "inlined" || strings.Contains(file, "+0x") {
			return
		}
		got, ok := parseFrame(fmt.Sprintf("\t%16x %s+0x%x (%s)", address, name, offset, file))
		want := perfScriptFrame{address: address, name: name, offset: offset, file: file}
		if isUnnamed(name) {
			want.name = ""
		}
		if got != want || !ok {
			t.Errorf("got %+v, %v; want %+v", got, ok, want)
		}
	})
}

// isUnnamed reports whether a symbol stands for none.
func isUnnamed(name string) bool {
	_, err := strconv.ParseUint(name, 0, 64)
	return err == nil || name == "[unknown]"
}

// isBalanced reports whether all parentheses of text are in pairs.
func isBalanced(text string) bool {
	depth := 0
	for _, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return false
			}
		}
	}
	return depth == 0
}

// written is a sample as perf script writes it by builtin-script.c, and what is to be read.
type written struct {
	text   strings.Builder
	stacks map[string]int64 // by task and functions from the root
	total  int64            // periods, if there is an event
}

// scriptFields are fields of -F.
type scriptFields struct {
	comm, pid, tid, cpu, misc, tod, time, period, event, addr, weight, sym, symoff, dso, dsoff, srcline, chain bool
	after                                                                                                      int // what follows: see afters
}

// afters are lines that perf writes behind a call chain, in the place of the empty line.
var afters = []string{
	"\n",
	" 0x401000/0x401010/P/-/-/0/COND/-  0x401020/0x401000/M/-/-/12/-/- \n",
	"work+0x3/main+0x5/P/-/-/0 main+0x1/work+0x0/-/-/-/3 \n",
	" ABI:2    AX:0x1    BX:0xdead \n",
	" ilen: 3 insn: 48 89 e5\n",
	"    7ffc12345678 4K 2M\n",
	"\n      BPF output: 0000: 01 02 03 04 05 06 07 08  ........\n                  0008: 0a 0b                    ..\n\n",
	"\n\twork+3:\n\t0000000000401003\tinsn: 48 89 e5\n\t0000000000401006\tinsn: 75 f0             \t# PRED 3 cycles [3]\n\t... not reaching sample ...\n\n",
	" \t IPC: 1.50 (3/2) \n",
	"\n|12       return add(1, 2);\n",
}

var (
	oddComms  = []string{"prog", "a b 7", ":-1", "cafe", "[001]", "kworker/0:1", "x: y", "1/2", "U", "Web Content"}
	oddEvents = []string{"cycles", "cycles:Pu", "cpu-clock:uhH", "sched:sched_switch", "cpu/mem-loads,ldlat=30/P", "r01c2"}
	oddFrames = []perfScriptFrame{
		{address: 0x1243, name: "work", offset: 3, file: "/usr/bin/my prog"},
		{address: 0x12ab, name: "ns::add(int, dead beef)", offset: 0x1b, file: "/tmp/lib (1).so (deleted)"},
		{address: 0xffffffff81d955c0, name: "do_exit", offset: 0x50, file: "[kernel.kallsyms]"},
		{address: 0x7f7241fbe6d8, name: "(anonymous namespace)::f(char*)", offset: 1, file: "/usr/lib/libjvm.so"},
		{address: 0xadd, name: "add", offset: 2, file: "/tmp/perf-1.map"},
	}
)

// head writes the fields before the event, as perf_sample__fprintf_start does.
func (f scriptFields) head(comm string, pid, tid int, period int64, event string) string {
	var b strings.Builder
	switch {
	case f.comm && f.chain:
		b.WriteString(comm + " ")
	case f.comm:
		fmt.Fprintf(&b, "%16s ", comm)
	}
	switch {
	case f.pid && f.tid:
		fmt.Fprintf(&b, "%7d/%-7d ", pid, tid)
	case f.pid:
		fmt.Fprintf(&b, "%7d ", pid)
	case f.tid:
		fmt.Fprintf(&b, "%7d ", tid)
	}
	if f.cpu {
		b.WriteString("[001] ")
	}
	if f.misc {
		b.WriteString("U     ")
	}
	if f.tod {
		b.WriteString("2024-01-02 12:34:56.123456 ")
	}
	if f.time {
		fmt.Fprintf(&b, "%12s: ", "5596.724906")
	}
	if f.period {
		fmt.Fprintf(&b, "%10d ", period)
	}
	if f.event {
		fmt.Fprintf(&b, "%*s: ", len(event)+2, event)
	}
	return b.String()
}

// place writes an instruction's symbol, file and source line, as sample__fprintf_sym does.
func (f scriptFields) place(at perfScriptFrame, inlined bool) string {
	var b strings.Builder
	if f.sym {
		b.WriteString(" " + at.name)
		if f.symoff {
			fmt.Fprintf(&b, "+0x%x", at.offset)
		}
	}
	if f.dso && !inlined {
		b.WriteString(" (" + at.file)
		if f.dsoff {
			fmt.Fprintf(&b, "+0x%x", at.address)
		}
		b.WriteString(")")
	}
	if f.srcline {
		b.WriteString("\n  file.c:12")
	}
	if inlined {
		b.WriteString(" (inlined)")
	}
	return b.String()
}

// add writes a sample.
func (w *written) add(f scriptFields, r *rand.Rand) {
	comm, event, period := oddComms[r.IntN(len(oddComms))], oddEvents[r.IntN(len(oddEvents))], int64(r.IntN(1e6)+1)
	if !f.pid && !f.tid || !f.time && !f.cpu {
		comm = []string{"prog", ":-1", "Web Content"}[r.IntN(3)] // others cannot be told from fields
	}
	pid := []int{-1, 0, 7, 12369, 4194303}[r.IntN(5)]
	w.text.WriteString(f.head(comm, pid, pid, period, event))
	if f.addr {
		fmt.Fprintf(&w.text, "%16x", 0x561d2928b048)
		if f.sym {
			w.text.WriteString(" __TMC_END__")
			if f.symoff {
				w.text.WriteString("+0x0")
			}
		}
		if f.dso {
			w.text.WriteString(" (/usr/bin/my prog)")
		}
	}
	if f.weight {
		fmt.Fprintf(&w.text, "%16x |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A  %16d", 0x1e05080021, 17)
	}
	var names []string
	if f.comm {
		names = append(names, comm)
	} else {
		names = append(names, "")
	}
	depth := 1
	if f.chain {
		depth = r.IntN(len(oddFrames)) + 1
	}
	first := r.IntN(len(oddFrames))
	var functions []string
	if f.chain {
		w.text.WriteString("\n")
	} else {
		w.text.WriteString(" ")
	}
	for i := range depth {
		at := oddFrames[(first+i)%len(oddFrames)]
		if f.chain {
			inlined := f.sym && i+1 < depth && r.IntN(4) == 0
			fmt.Fprintf(&w.text, "\t%16x%s\n", at.address, f.place(at, inlined))
		} else {
			fmt.Fprintf(&w.text, "%16x%s", at.address, f.place(at, false))
		}
		if !f.sym {
			at.name = ""
		}
		functions = append(functions, at.name)
	}
	if f.chain {
		w.text.WriteString(afters[f.after])
	} else {
		w.text.WriteString("\n")
	}
	slices.Reverse(functions)
	w.stacks[strings.Join(append(names, functions...), ";")]++
	if f.event {
		if !f.period {
			period = 1
		}
		w.total += period
	}
}

// stacksOf returns the stacks of a profile as in [written], and the sum of its events.
func stacksOf(p *profile.Profile) (stacks map[string]int64, total int64) {
	stacks = map[string]int64{}
	for _, s := range p.Samples {
		names := []string{p.Tasks[s.Task].Comm}
		frames := p.AppendFrames(nil, s.Stack)
		slices.Reverse(frames)
		for _, id := range frames {
			names = append(names, p.Functions[p.Frames[id].Function].Name)
		}
		for i, n := range s.Values {
			if strings.HasSuffix(p.ValueTypes[i].Type, "samples") {
				stacks[strings.Join(names, ";")] += n
			} else {
				total += n
			}
		}
	}
	return stacks, total
}

// All fields of -F that this reader may meet, in all combinations that perf prints.
func TestPerfScriptFields(t *testing.T) {
	testenv.Slow(t)
	const bits = 14
	r := rand.New(rand.NewPCG(1, 2))
	tried, wrong := 0, 0
	for mask := range 1 << bits {
		bit := func(i int) bool { return mask>>i&1 != 0 }
		f := scriptFields{
			comm: bit(0), pid: bit(1), tid: bit(2), cpu: bit(3), misc: bit(4), time: bit(5), period: bit(6), event: bit(7), addr: bit(8), sym: bit(9),
			dso: bit(10), srcline: bit(11), chain: bit(12), weight: bit(13) && bit(8), tod: bit(13) && bit(5),
		}
		f.symoff, f.dsoff = f.sym && r.IntN(2) == 0, f.dso && r.IntN(4) == 0
		switch {
		case f.misc && !f.pid && !f.tid && !f.cpu && !f.comm,
			!f.sym && !f.dso, // numbers only
			!f.time && (f.addr || f.weight) && f.misc,
			!f.pid && !f.tid && !f.cpu && !f.time && (f.misc || f.period || !f.chain): // columns without a meaning
			continue
		}
		if f.chain && r.IntN(2) == 0 {
			f.after = r.IntN(len(afters))
		}
		w := written{stacks: map[string]int64{}}
		for range 4 {
			w.add(f, r)
		}
		tried++
		p, format, err := Read(t.Context(), strings.NewReader(w.text.String()), "input")
		if err != nil {
			t.Errorf("%+v: %v in\n%s", f, err, w.text.String())
		} else if stacks, total := stacksOf(p); format != PerfScript || fmt.Sprint(stacks) != fmt.Sprint(w.stacks) || total != w.total || p.Losses[profile.LossUnread] > 0 {
			t.Errorf("%+v: read as %s: got %v, %d, %d lines lost; want %v, %d in\n%s", f, format, stacks, total, p.Losses[profile.LossUnread], w.stacks, w.total, w.text.String())
		}
		if t.Failed() {
			if wrong++; wrong == 5 {
				break
			}
		}
	}
	t.Logf("%d combinations", tried)
}

// Texts of other versions, other tools and odd tasks.
func TestPerfScriptCases(t *testing.T) {
	for name, c := range map[string]struct {
		in    string
		want  string // stacks, sorted
		lost  uint64
		lines uint64
	}{
		"data address":             {"prog  9329  5596.724906:          1 page-faults:     561d2928b048 __TMC_END__+0x0 (/usr/bin/prog)\n\t            1243 work+0x3 (/usr/bin/prog)\n\n", "prog;work", 0, 0},
		"only data":                {"prog  9329  5596.724906:          1 page-faults:     561d2928b048 __TMC_END__+0x0 (/usr/bin/prog)\n", "prog", 0, 0},
		"no time":                  {"java 19983 cycles:\n\t    7f7241fbe6d8 base (/usr/lib/libjvm.so)\n\n", "java;base", 0, 0},
		"few fields":               {"prog 12369/12369 \n\t            1243 work (/usr/bin/prog)\n\n", "prog;work", 0, 0},
		"empty line":               {"inline-counter 26037  8801.194312:     250000 cpu-clock:uhH:\n\n\t          401b94 main+0x1c (./inline-counter)", "inline-counter;main", 0, 0},
		"dying":                    {":-1    -1/-1    [001]  3903.119912:     250000 cpu-clock: \n\tffffffff81366eda do_exit+0x6aa ([kernel.kallsyms])\n\n", ":-1;do_exit", 0, 0},
		"simpleperf":               {"Gecko\t25122 [007] 115539.936601:\t\t1000000 task-clock:u:\n        b3cea6c4\tLock::unlock() (/system/lib/libc.so)\nffffffff81000000\tf (/x)\n\n", "Gecko;f;Lock::unlock()", 0, 0},
		"without tabs":             {"node-v011 31912 cpu-clock: \n            13a80b608e0a RegExp:[&<>] (/tmp/perf-7539.map)\nffffffff8103d0ca native_write_msr_safe ([kernel.kallsyms])\n\n", "node-v011;native_write_msr_safe;RegExp:[&<>]", 0, 0},
		"CRLF":                     {"a 1 1.500000: cycles: \r\n\t1243 work (/x)\r\n\r\n", "a;work", 0, 0},
		"no head":                  {"\t            1243 work (/x)\n\t            12ab main (/x)\n\n\t            12ab main (/x)\n\n", "main;;main;work", 0, 0},
		"junk":                     {"# cmdline : perf record\nhello\na 1 1.500000: cycles: \n\t1243 work (/x)\nwhat is this?\n\t12ab main (/x)\n\n", "a;main;work", 0, 2},
		"records":                  {"a 1/1 1.500000: PERF_RECORD_MMAP2 1/1: [0x1000(0x1000) @ 0 08:01 12 0]: r-xp /x\na 1/1 1.600000: PERF_RECORD_LOST lost 12\nPERF_RECORD_NAMESPACES 1/1 - nr_namespaces: 7\n\t\t[0/net: 3/0xf0000075, 1/uts: 3/0xeffffffe]\na 1/1 1.700000: 5 cycles: \n\t1243 work (/x)\n\n", "a;work", 12, 0},
		"deferred":                 {"a 1 1.500000: 5 cycles: \n\tffffffff81366eda do_exit+0x6aa ([kernel.kallsyms])\n\t       b00000006 (cookie) ([unknown])\n\na 1 1.600000: DEFERRED CALLCHAIN [cookie: b00000006]\n\t1243 work (/x)\n\t12ab main (/x)\n\n", "a;main;work;do_exit", 0, 0},
		"deferred, cut":            {"a 1 1.500000: 5 cycles: \n\tffffffff81366eda do_exit+0x6aa ([kernel.kallsyms])\n\t       b00000006 (cookie) ([unknown])\n\n", "a;do_exit", 0, 0},
		"source":                   {"a 1 1.500000: 5 cycles: \n\t            1243 work+0x3 (/x)\n  w.c:12 (discriminator 3)\n\t            12ab inl\n  w.c:7 (inlined)\n\t            12ab main+0x1 (/x)\n  ??:0\n\n", "a;main;inl;work", 0, 0},
		"2017's inline":            {"a 1 1.500000: 5 cycles: \n\t            1243 work+0x3 (/x)\n\t                 inner\n\t                 work\n\t            12ab main+0x1 (/x)\n\n", "a;main;work;inner", 0, 0},
		"branch trace":             {"            a 1 [000] 1.500000:          1 branches:u:      7f704f0d9b70 _start+0x0 (/lib/ld.so) =>     7f704f0d9b90 _dl_start+0x0 (/lib/ld.so)\n", "a;_start", 0, 0},
		"flags":                    {"            a 1 [000] 1.500000:          1 branches:u:   tr strt jmp           7f704f0d9b70 _start+0x0 (/lib/ld.so)\n", "a;_start", 0, 0},
		"tracepoint":               {"swapper     0/0     [001]  1.500000: sched:sched_switch: swapper/1:0 [120] R ==> cc1: x:123 [120]\n", "swapper", 0, 0},
		"no event":                 {"              sh 18326 [000] prev_comm=a: b prev_pid=7 [120] R ==> x: \n      swapper 0 [001]          1 NR 59 (7)\n     sh     7/7     [012] \n\t            1243 work (/x)\n\n", "sh;;sh;work;;swapper", 0, 0},
		"bare heads":               {"a 7 \n\nb 8 \n\t            1243 work (/x)\n\nc 9          3 \n\n", "a;;b;work;;c", 0, 0},
		"trimmed":                  {"a 7 cycles:\n0000000000001243 work (/x)\n\n# b 8 cycles: 3\nb 8 cycles:\nffffffff81024282 enter ([kernel.kallsyms])\n", "a;work;;b;enter", 0, 0},
		"bare frames":              {" ffffffff81024282 enter ([kernel.kallsyms])\n             1243 work (/x)\n             1243 work (/x)\n", "enter;;work", 0, 0},
		"bare words":               {"a 7 \n\n\t            1243 work (/x)\n\nc 9          3 \n\n", "work", 0, 2},
		"mixed CPUs":               {"sh 18326     289268 \n\t            1243 work (/x)\n\n              sh 18326 [000] filename=/x pid=1\nsh 18326          1 \n\t            1243 work (/x)\n\t            12ab main (/x)\n\n", "sh;;sh;main;work;;sh;work", 0, 0},
		"line ends in a field":     {"sh 1 [001] 1.500000:       sched:sched_switch: prev_comm=sh prev_pid=1 ==> next_comm=]0;\n7 1\n next_pid=2 next_prio=120\n\t            1243 work (/x)\n\nsh 1 [001] 1.600000: sched:sched_switch: prev_comm=a ==> next_comm=b\n \nx\n\nsh 1 [001] 1.700000: 5 cycles: \n7 1\n\t            1243 work (/x)\n\n", "sh;;sh;work", 0, 1},
		"probe":                    {"sh 18326 [000] (ffffffff81366eda) arg1=a: b\n\t            1243 work (/x)\n\n", "sh;work", 0, 0},
		"unknown":                  {"              sh 15487/15487      7f06c3149b70 _start\n              sh 15487/15487      7f06c3149b90 [unknown]\n", "sh;;;sh;_start", 0, 0},
		"-L":                       {"      sh 18326   0 32390.859849:    2000000 cpu-clock: \n\t            1243 work (/x)\n\nmy prog   123/123    12   123.859849:    2000000 cpu-clock: \n\t            1243 work (/x)\n\n", "my prog;work;;sh;work", 0, 0},
		"-L, no time":              {"      sh 18326   3 cpu-clock: \n\t            1243 work (/x)\n\n      sh 18326   3    2000000 cpu-clock: \n\t            1243 work (/x)\n\n", "sh;work", 0, 0},
		"branches":                 {"a 1 1.500000: 5 cycles: \n\t            1243 work (/x)\nmain+0x10/leaf+0x0/P/-/-/3/  main+0x10/f(int, int)+0x0/P/-/-/3/ \n\na 1 1.500000: 5 cycles: \n\t            1243 leaf (/x)\n 0x1136/0x1120/M/X/A/3/CALL/- \n\n", "a;leaf;;a;work", 0, 0},
		"after a file":             {"             1243 work (/x)main+0x10/work+0x0/P/-/-/3/ \n             1243 (/x (deleted)) 0x1136(/x (deleted))/0x1120(/x (deleted))/PN/-/-/0 \n", ";;work", 0, 0},
		"data source":              {"      1e05080021 |OP N/A|LVL N/A or N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A\n\t            1243 work\n\t            12ab main\n ilen: 1\n        68100142 |OP LOAD|LVL L1 hit|SNP None\n\t            1243 work\n", "main;work;;work", 0, 0},
		"data address, few fields": {"ls 19996/19996     7feef79d5e06 _rtld_global+0xde6 (/lib/ld.so)\n\t            1243 work+0x3 (/x)\n\n", "ls;work", 0, 0},
		"data address only":        {"    7feef79bcb70 a+0x1 (/x)\n\t            1243 work+0x3 (/x)\n\n    7feef79d5e06 [unknown] (/x)\n\t            12ab main+0x3 (/x)\n\n", "main;;work", 0, 0},
		"weight only":              {"               0\n\t            1243 work\n ilen: 3\n               0\n\t            12ab main\n ilen: 7\n", "main;;work", 0, 0},
		"length only":              {"\n\t            1243 work\n ilen: 3\n\n\t            12ab main\n ilen: 7\n", "main;;work", 0, 0},
		"data, no call chains":     {"              ls                0     7feef79bcb70 _start (/lib/ld.so)\n              ls               17     7feef79bd7ad f (/lib/ld.so)\n", "ls;_start;;ls;f", 0, 0},
		"weight, no call chains":   {"               0     7feef79bcb70 _start (/lib/ld.so)\n              17     7feef79bd7ad f (/lib/ld.so)\n", "_start;;f", 0, 0},
		"data and period":          {"         1       1e05080021 |OP N/A|BLK  N/A     7feef79bcb70 _start+0x0\n         1       1e05080021 |OP N/A|BLK  N/A     7feef79bd7ad f+0x3d\n", "_start;;f", 0, 0},
		"assembly":                 {"a 1 1.500000: 5 cycles: \n\t            1243 work (/x)\n\t\tadd $0x8,%rsp\n", "a;work", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := decoded(t, []byte(c.in), PerfScript)
			stacks, _ := stacksOf(p)
			got := slices.Sorted(maps.Keys(stacks))
			for i, s := range got {
				got[i] = strings.TrimPrefix(s, ";")
			}
			if text := strings.Join(got, ";;"); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
			if p.Losses[profile.LossRing] != c.lost || p.Losses[profile.LossUnread] != c.lines {
				t.Errorf("got %d samples and %d lines lost, want %d and %d", p.Losses[profile.LossRing], p.Losses[profile.LossUnread], c.lost, c.lines)
			}
		})
	}
}

// Names that cannot be told apart are no names.
func TestPerfScriptGluedBranches(t *testing.T) {
	for _, text := range []string{
		"             1243main+0x10/work+0x0/P/-/-/3/ \n",
		"             1243 workmain+0x10/work+0x0/P/-/-/3/ \n",
		"a 1 1.500000:             1243 workmain+0x10/work+0x0/P/-/-/3/ \n",
		"1.500000:             1243 work+0x3main+0x10/work+0x0/P/-/-/3/ \n",
	} {
		if _, _, err := Read(t.Context(), strings.NewReader(text), ""); !errors.Is(err, errGluedBranches) {
			t.Errorf("%q: got error %v, want %v", text, err, errGluedBranches)
		}
	}
}

// Clocks with settings are times, and no other event is added to them.
func TestPerfScriptClocks(t *testing.T) {
	p := decoded(t, []byte("a 1 1.500000:    2000000 cpu-clock/freq=500/u: \n\t1243 work (/x)\n\na 1 1.500000:   7 page-faults:u: \n\t1243 work (/x)\n\n"), PerfScript)
	var got []string
	for i, v := range p.ValueTypes {
		got = append(got, fmt.Sprintf("%s %s %d", v.Type, v.Unit, p.Total(i)))
	}
	if want := []string{"cpu-clock samples count 1", "cpu-clock nanoseconds 2000000", "page-faults samples count 1", "page-faults count 7"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Fractional periods add up to their sum.
func TestPerfScriptFractions(t *testing.T) {
	p := decoded(t, []byte(strings.Repeat("a 1 1.500000: 0.25 cycles: \n\t1243 work (/x)\n\n", 10)), PerfScript)
	if got := p.Total(1); got != 2 {
		t.Errorf("got a total of %d, want 2", got)
	}
}

// Events are apart in a profile if perf's names of them are unlike, and have no modifiers if the names
// are unlike without them, too.
func TestPerfScriptEvents(t *testing.T) {
	for _, c := range []struct {
		events []string // one of each sample
		want   string   // the sum of each value
	}{
		{[]string{"cycles:Pu", "cycles:Pu"}, "samples=2 cycles=14"},
		{[]string{"cpu-clock:u", "cpu-clock:k", "cpu-clock:u"}, "cpu-clock:u samples=2 cpu-clock:u=14 cpu-clock:k samples=1 cpu-clock:k=7"},
		{[]string{"cycles", "cycles:u", "instructions:u"}, "cycles samples=1 cycles=7 cycles:u samples=1 cycles:u=7 instructions samples=1 instructions=7"},
		{[]string{"cpu-clock/freq=500/", "page-faults:uH"}, "cpu-clock samples=1 cpu-clock=7 page-faults samples=1 page-faults=7"},
		{[]string{"probe:foo", "probe:bar", "probe:foo"}, "probe:foo samples=2 probe:foo=14 probe:bar samples=1 probe:bar=7"},
		{[]string{"probe:up"}, "samples=1 probe:up=7"},
		{[]string{"probe_app:up", "sdt_app:up"}, "probe_app:up samples=1 probe_app:up=7 sdt_app:up samples=1 sdt_app:up=7"},
		{[]string{"irq:exit", "irq:entry"}, "irq:exit samples=1 irq:exit=7 irq:entry samples=1 irq:entry=7"},
		{[]string{"sched:sched_switch:u"}, "samples=1 sched:sched_switch:u=7"},
	} {
		var text strings.Builder
		for i, event := range c.events {
			fmt.Fprintf(&text, "a %d [000] %d.000000: 7 %s: \n\t401136 f+0x0 (/bin/a)\n\n", 7, i, event)
		}
		p := decoded(t, []byte(text.String()), PerfScript)
		var got []string
		for i, v := range p.ValueTypes {
			got = append(got, fmt.Sprintf("%s=%d", v.Type, p.Total(i)))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%v: got %s, want %s", c.events, got, c.want)
		}
	}
}
