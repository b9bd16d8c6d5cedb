package decode

import (
	"bufio"
	"regexp"
	"strconv"
	"strings"

	"fulgur/internal/profile"
)

// readPerfScript reads the text of perf script, without telling threads apart as
// stackcollapse-perf.pl does not: for each sample a line with the
// task and the event, lines with the frames, the innermost first, and an empty
// one. Without call chains the one frame is on the first line.
//
//	tar 4242/4243 [001] 24082.558395:    2004008 cpu-clock:
//	        ffffffff81355977 copy_process+0x1107 ([kernel.kallsyms])
//	                    113c leaf+0x13 (/usr/bin/tar)
//
// The first value counts samples; each event has another, the sum of periods.
func readPerfScript(r *bufio.Reader) (*profile.Profile, error) {
	c := newCollector(profile.ValueType{Type: "samples", Unit: "count"})
	in := lines{r: r, most: maxEventLine}
	var s *perfSample
	for {
		line, ok, err := in.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			c.perfSample(s)
			return c.profile(profile.Meta{})
		}
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			c.perfSample(s)
			s = nil
		case line[0] != '\t' && isHeader(line):
			c.perfSample(s)
			s = c.parseHeader(line)
		case isFrame(line):
			f, ok := parseFrame(line)
			if !ok || s == nil {
				return nil, in.errorf("a frame without a sample: %.60q", line)
			}
			c.add(s, f)
		}
	}
}

// maxEventLine is the longest line of perf script and bpftrace that is read, in
// bytes: one frame, or the head of a sample.
const maxEventLine = 1 << 20

// Lines of perf script. The task's name may contain spaces, so that what
// follows it decides: numbers of process and thread, perhaps a CPU, and a time
// or an event.
var (
	perfHeader = regexp.MustCompile(`^\s*(\S.*?)\s+(-?\d+)(?:/(\d+))?\s+(?:\[(\d+)\]\s+)?(?:[.\w]{4,}\s+)?(?:(\d+\.\d+):\s*)?(?:(\d+)\s+)?(\S+?):(?:\s+(.*))?$`)
	// perfFrame is an address, a symbol with its offset and the file, if they
	// are shown. perf script indents it by a tab, and a task's name by spaces.
	perfFrame = regexp.MustCompile(`^\s+([0-9a-f]{1,16}) (.+?)(?: \(([^()]*(?:\([^()]*\))?[^()]*)\))?$`)
	// symbolOffset is what comes after a function's name: perf prints hexadecimal
	// numbers, bpftrace decimal ones.
	symbolOffset = regexp.MustCompile(`\+(0x[0-9a-f]+|[0-9]+)$`)
)

// isHeader reports whether a line begins a sample.
func isHeader(line string) bool {
	m := perfHeader.FindStringSubmatch(line)
	if len(m) == 0 || strings.HasPrefix(m[7], "PERF_RECORD_") {
		return false
	}
	return m[4] != "" || m[5] != "" || m[6] != "" // a CPU, a time or a period
}

// isFrame reports whether a line is a frame.
func isFrame(line string) bool { return perfFrame.MatchString(line) }

// perfSample is a sample of which some was read.
type perfSample struct {
	task   profile.Task
	cpu    int
	event  string
	period int64
	frames []readFrame  // the innermost first
	callee profile.Kind // of the last instruction in frames, if there is one
	calls  bool         // there is one
}

// readFrame is a frame that was read. One that is inlined has no file of its own,
// and no place.
type readFrame struct {
	profile.Frame
	hasFile bool
}

// perfScriptFrame is a frame as perf script prints it.
type perfScriptFrame struct {
	address uint64
	name    string // empty if not known
	offset  uint64
	file    string
	inlined bool
}

// parseHeader reads a line for which isHeader holds.
func (c *collector) parseHeader(line string) *perfSample {
	m := perfHeader.FindStringSubmatch(line)
	s := &perfSample{cpu: -1, event: m[7], period: 1}
	s.task.Comm = m[1]
	if m[3] != "" { // one number alone is the thread's
		s.task.PID, _ = strconv.Atoi(m[2]) // one too large is none
	}
	if n, err := strconv.ParseInt(m[6], 10, 64); err == nil {
		s.period = n
	}
	if m[8] != "" {
		if f, ok := parseFrame(" " + m[8]); ok {
			c.add(s, f)
		}
	}
	return s
}

// add adds the next frame of a sample, towards the root.
func (c *collector) add(s *perfSample, f perfScriptFrame) {
	// Those next to the root are kept: the others make no difference to a stack
	// that is cut.
	const kept = profile.MaxDepth + 1
	if len(s.frames) == 2*kept {
		s.frames = append(s.frames[:0], s.frames[kept:]...)
	}
	made := c.madeFrame(f)
	// perf prints return addresses. User code that entered the kernel did not call it.
	made.Return = s.calls && (s.callee != profile.KindKernel || made.Kind == profile.KindKernel)
	if !made.Inlined {
		s.callee, s.calls = made.Kind, true
	}
	s.frames = append(s.frames, readFrame{made, f.file != ""})
}

// parseFrame reads a line of a call chain.
func parseFrame(line string) (f perfScriptFrame, ok bool) {
	m := perfFrame.FindStringSubmatch(line)
	if m == nil {
		return f, false
	}
	f.address, _ = strconv.ParseUint(m[1], 16, 64) // at most 16 digits
	f.name, f.file = strings.TrimSpace(m[2]), m[3]
	f.name, f.offset = cutOffset(f.name)
	if f.file == "inlined" {
		f.file, f.inlined = "", true
	}
	if _, err := strconv.ParseUint(f.name, 0, 64); err == nil || f.name == "[unknown]" {
		f.name = "" // bpftrace repeats the address
	}
	return f, true
}

// cutOffset cuts the offset off the name of a symbol.
func cutOffset(symbol string) (name string, offset uint64) {
	digits := symbolOffset.FindString(symbol)
	if digits == "" || digits == symbol {
		return symbol, 0
	}
	offset, err := strconv.ParseUint(digits[1:], 0, 64)
	if err != nil {
		return symbol, 0
	}
	return strings.TrimSuffix(symbol, digits), offset
}

// perfSample adds a sample, unless it is nil.
func (c *collector) perfSample(s *perfSample) {
	if s == nil {
		return
	}
	at := profile.Sample{CPU: s.cpu, Task: c.Task(s.task)}
	var outer readFrame // the one that an inlined frame is part of
	for i := len(s.frames) - 1; i >= 0 && !c.IsCut(at.Stack); i-- {
		f := s.frames[i]
		if f.hasFile || i == len(s.frames)-1 {
			outer = f
		}
		if f.Inlined {
			f.Mapping, f.Kind, f.Address, f.Return = outer.Mapping, outer.Kind, outer.Address, outer.Return
		}
		at.Stack = c.Push(at.Stack, c.Frame(f.Frame))
	}
	c.Count(at, 0, 1)
	unit := "count"
	if s.event == "cpu-clock" || s.event == "task-clock" {
		unit = "nanoseconds"
	}
	if s.period > 0 {
		c.Count(at, c.Value(profile.ValueType{Type: eventName(s.event), Unit: unit}), s.period)
	}
}

// eventName returns an event without perf's modifiers: "cycles" of "cycles:Pu".
func eventName(event string) string {
	if name, _, ok := strings.Cut(event, ":"); ok && !strings.Contains(name, "/") && len(event)-len(name) <= 5 {
		return name
	}
	return event
}

// madeFrame returns a frame as profiles have it.
func (c *collector) madeFrame(f perfScriptFrame) profile.Frame {
	made := profile.Frame{Address: f.address, Offset: f.offset, Inlined: f.inlined}
	if isKernelFile(f.file) || f.address >= 1<<63 {
		made.Kind = profile.KindKernel
	}
	switch {
	case strings.HasSuffix(f.file, ".map") || strings.HasPrefix(f.file, "//anon") || f.file == "[anon]":
		made.Mapping, made.Kind = c.Mapping(profile.Mapping{Path: "[jit]"}), profile.KindJIT
	case f.file != "" && f.file != "[unknown]":
		made.Mapping = c.Mapping(profile.Mapping{Path: f.file})
	}
	if f.name != "" {
		made.Function = c.Function(profile.Function{Name: f.name, SystemName: f.name})
	}
	return made
}
