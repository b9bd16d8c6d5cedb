package offline

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pprof "github.com/google/pprof/profile"

	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/output"
	"fulgur/internal/testenv"
)

// facets are what a profile can have, by the names of the rows of the table in docs/profiles.md.
// Each is described by a text that is equal in profiles with the same.
var facets = []struct {
	name string
	of   func(*profile.Profile) string
}{
	{"functions and amounts of the value shown", func(p *profile.Profile) string {
		return stacks(p, func(profile.Sample) string { return "" }, func(p *profile.Profile, id profile.FrameID) string { return p.FrameName(id) }, 1)
	}},
	{"all values and their order", func(p *profile.Profile) string {
		p = p.InBase() // the units are another row
		var types []string
		for i, name := range p.ValueNames() { // formats may write these names
			types = append(types, fmt.Sprint(name, " ", p.Total(i)))
		}
		return fmt.Sprint(types) + stacks(p, none, func(*profile.Profile, profile.FrameID) string { return "" }, len(p.ValueTypes))
	}},
	{"units other than ns, bytes and counts", func(p *profile.Profile) string {
		var units []string
		for _, v := range p.ValueTypes {
			units = append(units, v.Unit)
		}
		return fmt.Sprint(units)
	}},
	{"source files", frames(func(p *profile.Profile, f profile.Frame) string { return p.Functions[f.Function].File })},
	{"lines and columns", frames(func(_ *profile.Profile, f profile.Frame) string { return fmt.Sprint(f.Line, ":", f.Column) })},
	{"first lines of functions", frames(func(p *profile.Profile, f profile.Frame) string { return fmt.Sprint(p.Functions[f.Function].StartLine) })},
	{"linker names", frames(func(p *profile.Profile, f profile.Frame) string { return p.Functions[f.Function].SystemName })},
	{"inlined functions", frames(func(_ *profile.Profile, f profile.Frame) string { return fmt.Sprint(f.Inlined) })},
	{"files with code", frames(func(p *profile.Profile, f profile.Frame) string { return p.Mappings[f.Mapping].Path })},
	{"build IDs", frames(func(p *profile.Profile, f profile.Frame) string { return p.Mappings[f.Mapping].BuildID })},
	{"addresses in memory", frames(func(p *profile.Profile, f profile.Frame) string {
		address, ok := p.Mappings[f.Mapping].Running(f.Address)
		return fmt.Sprint(address, ok)
	})},
	{"process IDs", samples(func(p *profile.Profile, s profile.Sample) string { return fmt.Sprint(p.Tasks[s.Task].PID) })},
	{"thread IDs", samples(func(p *profile.Profile, s profile.Sample) string { return fmt.Sprint(p.Tasks[s.Task].TID) })},
	{"names of tasks", samples(func(p *profile.Profile, s profile.Sample) string { return p.Tasks[s.Task].Comm })},
	{"CPUs", samples(func(_ *profile.Profile, s profile.Sample) string { return fmt.Sprint(s.CPU) })},
	{"labels, their numbers and units", samples(func(p *profile.Profile, s profile.Sample) string { return fmt.Sprint(p.LabelsOf(s.Task)) })},
	{"time and duration", func(p *profile.Profile) string { return fmt.Sprint(p.Meta.Start.UnixNano(), p.Meta.Duration) }},
	{"period and its type", func(p *profile.Profile) string { return fmt.Sprint(p.Meta.Every) }},
	{"default value", func(p *profile.Profile) string { return fmt.Sprint(p.Meta.Value, p.Meta.ValueGuessed) }},
	{"comments, frames to drop or keep, documentation", func(p *profile.Profile) string {
		return fmt.Sprintf("%q %q %q %q", p.Meta.Comments, p.Meta.DropFrames, p.Meta.KeepFrames, p.Meta.DocURL)
	}},
	{"flags of mappings", frames(func(p *profile.Profile, f profile.Frame) string { return fmt.Sprint(p.Mappings[f.Mapping].Looked) })},
}

func none(profile.Sample) string { return "" }

// frames describes a property of frames, beside their names.
func frames(of func(*profile.Profile, profile.Frame) string) func(*profile.Profile) string {
	return func(p *profile.Profile) string {
		return stacks(p, none, func(p *profile.Profile, id profile.FrameID) string {
			return p.FrameName(id) + " " + of(p, p.Frames[id])
		}, 1)
	}
}

// samples describes a property of samples, beside the names of their frames.
func samples(of func(*profile.Profile, profile.Sample) string) func(*profile.Profile) string {
	return func(p *profile.Profile) string {
		return stacks(p, func(s profile.Sample) string { return of(p, s) }, func(p *profile.Profile, id profile.FrameID) string { return p.FrameName(id) }, 1)
	}
}

// stacks describes the samples that are equal in a property and in one of their frames, with the
// sums of their first n values.
func stacks(p *profile.Profile, of func(profile.Sample) string, name func(*profile.Profile, profile.FrameID) string, n int) string {
	sums := map[string][]int64{}
	for _, s := range p.Samples {
		key := of(s)
		for _, id := range p.AppendFrames(nil, s.Stack) {
			key += "\n  " + name(p, id)
		}
		if sums[key] == nil {
			sums[key] = make([]int64, n)
		}
		for v := range n {
			sums[key][v] += s.Values[v]
		}
	}
	var list []string
	for key, values := range sums {
		list = append(list, fmt.Sprint(values, key))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// kept reads the table in docs/profiles.md: what each format keeps.
func kept(t *testing.T) map[string]map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| kept from reader to writer |")
	if !ok {
		t.Fatal("docs/profiles.md has no table of what formats keep")
	}
	cells := func(line string) (list []string) {
		for _, cell := range strings.Split(strings.Trim(line, "| "), "|") {
			list = append(list, strings.TrimSpace(cell))
		}
		return list
	}
	lines := strings.Split(table, "\n")
	all := map[string]map[string]bool{}
	names := cells(lines[0])
	for _, name := range names {
		all[name] = map[string]bool{}
	}
	for _, line := range lines[2:] {
		row := cells(line)
		if len(row) != len(names)+1 {
			break
		}
		for i, cell := range row[1:] {
			if cell != "yes" && cell != "no" {
				t.Fatalf("%q: got cell %q, want yes or no", row[0], cell)
			}
			all[names[i]][row[0]] = cell == "yes"
		}
	}
	return all
}

// inputs are the formats that fulgur only reads, with what writes a profile's first value as other
// tools do.
var inputs = map[string]func(*profile.Profile) string{"perf script": perfScript, "bpftrace": bpftraceMaps, perfDataName: perfData}

const perfDataName = "perf.data"

// perfScript returns the text of perf script -F comm,pid,tid,cpu,time,period,event,ip,sym,dso,srcline.
func perfScript(p *profile.Profile) string {
	var b strings.Builder
	for _, s := range p.Samples {
		task := p.Tasks[s.Task]
		fmt.Fprintf(&b, "%s %7d/%-7d [%03d] %12.6f: %10d %s: \n", task.Comm, task.PID, task.TID, s.CPU, 1.5, s.Values[0], "hits")
		for _, id := range p.AppendFrames(nil, s.Stack) {
			f := p.Frames[id]
			file := "(" + p.Mappings[f.Mapping].Path + ")"
			if f.Inlined {
				file = "(inlined)"
			}
			fmt.Fprintf(&b, "\t%16x %s %s\n  %s:%d\n", f.Address, p.FrameName(id), file, p.Functions[f.Function].File, f.Line)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// bpftraceMaps returns what bpftrace prints of the map @TYPE[ustack, pid, comm].
func bpftraceMaps(p *profile.Profile) string {
	var b strings.Builder
	for _, s := range p.Samples {
		b.WriteString("@hits[\n")
		for _, id := range p.AppendFrames(nil, s.Stack) {
			fmt.Fprintf(&b, "    %s+12\n", p.FrameName(id))
		}
		fmt.Fprintf(&b, ", %d, %s]: %d\n", p.Tasks[s.Task].PID, p.Tasks[s.Task].Comm, s.Values[0])
	}
	return b.String()
}

// perfData returns what perf record -e page-faults -g writes of code in files that exist: its processes
// map each of them at a place of its own.
func perfData(p *profile.Profile) string {
	const mmap2, comm, sample, user, withBuildID = 10, 3, 9, 2, 1 << 14
	words := func(values ...any) (b []byte) {
		for _, v := range values {
			b, _ = binary.Append(b, binary.NativeEndian, v)
		}
		return b
	}
	record := func(kind uint32, misc uint16, body []byte) []byte {
		return append(words(kind, misc, uint16(8+len(body))), body...)
	}
	padded := func(text string) []byte { return append([]byte(text), make([]byte, 8-len(text)%8)...) }
	bias := func(m profile.MappingID) uint64 { return uint64(m) << 32 }

	var data []byte
	seen := map[int]bool{}
	for i, s := range p.Samples {
		task := p.Tasks[s.Task]
		pid := uint32(task.PID)
		id := words(pid, pid, uint64(i)) // of records other than samples
		if !seen[task.PID] {
			seen[task.PID] = true
			for at, m := range p.Mappings {
				file, err := elf.Open(m.Path)
				if err != nil {
					continue
				}
				for _, part := range file.Progs {
					if part.Type == elf.PT_LOAD && part.Flags&elf.PF_X != 0 {
						body := words(pid, pid, bias(profile.MappingID(at))+part.Vaddr, part.Memsz, part.Off, uint32(20))
						buildID, _ := hex.DecodeString(m.BuildID)
						body = append(append(body, buildID...), words(uint32(4), uint32(2))...)
						data = append(data, record(mmap2, withBuildID|user, append(append(body, padded(m.Path)...), id...))...)
					}
				}
				file.Close()
			}
		}
		data = append(data, record(comm, user, append(append(words(pid, pid), padded(task.Comm)...), id...))...)
		chain := []uint64{math.MaxUint64 - 511} // PERF_CONTEXT_USER
		for _, id := range p.AppendFrames(nil, s.Stack) {
			if f := p.Frames[id]; !f.Inlined {
				address := bias(f.Mapping) + f.Address
				if len(chain) > 1 && !f.Return { // perf has the addresses after calls
					address++
				}
				chain = append(chain, address)
			}
		}
		data = append(data, record(sample, user, words(chain[1], pid, pid, uint64(i), uint64(s.Values[0]), uint64(len(chain)), chain))...)
	}
	const header, attr = 104, 112
	event := make([]byte, attr)
	// page-faults, with IP, TID, TIME, CALLCHAIN and PERIOD, and IDs in all records.
	for at, v := range map[int]uint64{0: 1 | attr<<32, 8: 2, 16: 1, 24: 1<<0 | 1<<1 | 1<<2 | 1<<5 | 1<<8, 40: 1 << 18} {
		binary.NativeEndian.PutUint64(event[at:], v)
	}
	out := append([]byte("PERFILE2"), words(uint64(header), uint64(attr+16), uint64(header), uint64(attr+16), uint64(header+attr+16), uint64(len(data)), [6]uint64{})...)
	out = append(append(out, event...), words(uint64(0), uint64(0))...)
	return string(append(out, data...))
}

// through writes a profile in a format and reads it again.
func through(t *testing.T, p *profile.Profile, name string) *profile.Profile {
	t.Helper()
	if made := inputs[name]; made != nil {
		in, err := readInput(t.Context(), write(t, "in", made(p)), "", "", noTimes, func(err error) { t.Log(err) })
		if err != nil || in.format != decode.Format(strings.TrimPrefix(name, perfDataName)) {
			t.Fatalf("%s: %v", name, err)
		}
		return in.profile.Only(len(in.profile.ValueTypes) - 1) // after the number of samples
	}
	f, err := output.Choose("", name)
	if err != nil {
		t.Fatal(err)
	}
	only := p
	if !f.AllValues() {
		only = p.Only(0)
	}
	var b bytes.Buffer
	if err := f.Write(&b, only, nil, output.Options{}, 0); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	back, _, err := decode.Read(t.Context(), &b, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return back
}

// recorded returns the profile of a recording by perf, and the mappings, functions and locations in it.
func recorded(t *testing.T) (*profile.Profile, *pprof.Profile) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "perf.data")
	program := testenv.Compile(t, "calls", "g++", "-O1", "-g", "-fno-omit-frame-pointer", "testdata/calls.cc")
	if text, err := testenv.Command(t, testenv.Tool(t, "perf"), "record", "-q", "-e", "cpu-clock:u", "-c", "500000", "-g", "-o", data, program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := convertTo(t, data, "pprof")
	if err != nil {
		t.Fatal(err)
	}
	named, err := pprof.ParseData([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	named.Location = slices.DeleteFunc(named.Location, func(l *pprof.Location) bool {
		return l.Mapping == nil || !profile.IsFile(l.Mapping.File) || len(l.Line) == 0
	})
	in, err := readInput(t.Context(), data, "", "", noTimes, func(err error) { t.Log(err) })
	if err != nil {
		t.Fatal(err)
	}
	p := in.profile
	p.Samples = slices.DeleteFunc(p.Samples, func(s profile.Sample) bool { // the first instructions have no frame pointers
		return slices.ContainsFunc(p.AppendFrames(nil, s.Stack), func(id profile.FrameID) bool { return p.Frames[id].Function == 0 })
	})
	return p, named
}

// madeCode returns mappings, functions and locations of files that do not exist.
func madeCode(r *rand.Rand) *pprof.Profile {
	in := &pprof.Profile{}
	for i := range 3 {
		m := &pprof.Mapping{
			ID: uint64(i + 1), Start: 0x400000 << (4 * i), Offset: uint64(i) << 12, File: fmt.Sprint("/nowhere/file", i), BuildID: fmt.Sprintf("%040x", i+1),
			HasFunctions: r.IntN(2) == 0, HasFilenames: r.IntN(2) == 0, HasLineNumbers: r.IntN(2) == 0, HasInlineFrames: r.IntN(2) == 0,
		}
		m.Limit = m.Start + 0x100000
		in.Mapping = append(in.Mapping, m)
	}
	for i := range 8 {
		in.Function = append(in.Function, &pprof.Function{
			ID: uint64(i + 1), Name: fmt.Sprintf("f%d(int)", i), SystemName: fmt.Sprintf("_Z2f%di", i), Filename: fmt.Sprintf("/src/f%d.cc", i), StartLine: int64(10 * (i + 1)),
		})
	}
	for i := range 12 {
		m := in.Mapping[i%3]
		l := &pprof.Location{ID: uint64(i + 1), Mapping: m, Address: m.Start + uint64(64*(i+1))}
		for n := range 1 + i%2 {
			fn := in.Function[(i+n)%8]
			l.Line = append(l.Line, pprof.Line{Function: fn, Line: fn.StartLine + int64(i), Column: int64(i % 4)})
		}
		in.Location = append(in.Location, l)
	}
	return in
}

// random returns a profile such as other tools write, with all that pprof's format can hold. Its code is
// that of another profile, if one is given.
func random(t *testing.T, seed uint64, code *pprof.Profile) *profile.Profile {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	in := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "hits", Unit: "count"}, {Type: "delay", Unit: "microseconds"}, {Type: "hits", Unit: "count"}, {Type: "space", Unit: "kilobytes"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &pprof.ValueType{Type: "space", Unit: "bytes"}, Period: 512 << 10, TimeNanos: 1.7e18 + 5, DurationNanos: 3e9 + 1,
		Comments: []string{"first\ncomment", "second"}, DropFrames: "f0", KeepFrames: "f1", DocURL: "https://example.com/doc",
		DefaultSampleType: []string{"", "space", "delay"}[seed%3],
	}
	if code == nil {
		code = madeCode(r)
	}
	in.Mapping, in.Function, in.Location = code.Mapping, code.Function, code.Location
	for range 20 {
		s := &pprof.Sample{Label: map[string][]string{}, NumLabel: map[string][]int64{}, NumUnit: map[string][]string{}}
		for range in.SampleType {
			s.Value = append(s.Value, r.Int64N(1e6)-int64(seed%2)*1000)
		}
		if s.Value[0] < 0 { // perf has no negative periods
			s.Value[0] = 7
		}
		for range 1 + r.IntN(6) {
			s.Location = append(s.Location, in.Location[r.IntN(len(in.Location))])
		}
		s.Label["comm"] = []string{fmt.Sprint("task", r.IntN(3))}
		pid := 100 + r.Int64N(2)
		s.NumLabel["pid"], s.NumLabel["tid"], s.NumLabel["cpu"] = []int64{pid}, []int64{pid + 10 + r.Int64N(2)}, []int64{r.Int64N(3)}
		if r.IntN(2) == 0 {
			s.Label["user"], s.Label["pid"] = []string{"a", "b"}, []string{"text"}
			s.NumLabel["size"], s.NumUnit["size"] = []int64{r.Int64N(100), 0}, []string{"bytes", "bytes"}
			s.NumLabel["plain"] = []int64{7}
		}
		in.Sample = append(in.Sample, s)
	}
	var b bytes.Buffer
	if err := in.Write(&b); err != nil {
		t.Fatal(err)
	}
	p, _, err := decode.Read(t.Context(), &b, "random")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Whatever two formats can both hold survives from one to the other, and what the documentation says
// that a format loses is lost.
func TestPairsKeep(t *testing.T) {
	testenv.Slow(t)
	t.Parallel()
	keeps := kept(t)
	lost := map[string]bool{}
	profiles := map[string]*profile.Profile{}
	for seed := range uint64(6) {
		profiles[fmt.Sprint("seed ", seed)] = random(t, seed, nil)
	}
	recording, code := recorded(t)
	const existing = "existing code, "
	profiles[existing+"recorded"] = recording
	for seed := range uint64(3) {
		profiles[fmt.Sprint(existing, "seed ", seed)] = random(t, seed, code)
	}
	for name, p := range profiles {
		// has reports whether p has a facet, and still has it between two formats.
		has := func(facet, from, to string) bool {
			if p == recording && !keeps[perfDataName][facet] {
				return false
			}
			// Folded stacks have process IDs only before thread IDs.
			isFolded := from == string(decode.Folded) || to == string(decode.Folded)
			return !isFolded || facet != "process IDs" || p != recording && keeps[from]["thread IDs"]
		}
		for from := range keeps {
			if from == perfDataName && !strings.HasPrefix(name, existing) {
				continue // all of its names come from other files
			}
			first := through(t, p, from)
			for _, facet := range facets {
				yes, documented := keeps[from][facet.name]
				if !documented {
					t.Fatalf("docs/profiles.md does not say whether %s keeps %s", from, facet.name)
				}
				if want, got := facet.of(p), facet.of(first); got != want && yes && has(facet.name, from, from) {
					t.Fatalf("%s: %s lost %s (-want +got):\n%s", name, from, facet.name, cmp.Diff(want, got))
				} else if got != want {
					lost[from+facet.name] = true
				}
			}
			for to := range keeps {
				if inputs[to] != nil {
					continue
				}
				second := through(t, first, to)
				for _, facet := range facets {
					if want, got := facet.of(p), facet.of(second); got != want && has(facet.name, from, to) && keeps[from][facet.name] && keeps[to][facet.name] {
						t.Fatalf("%s: from %s to %s, %s was lost (-want +got):\n%s", name, from, to, facet.name, cmp.Diff(want, got))
					}
				}
			}
		}
	}
	for format, rows := range keeps {
		for facet, yes := range rows {
			if !yes && !lost[format+facet] {
				t.Errorf("docs/profiles.md says that %s loses %s, but it does not", format, facet)
			}
		}
	}
}
