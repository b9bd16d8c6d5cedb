package decode

import (
	"bufio"
	"regexp"
	"strconv"
	"strings"

	"fulgur/internal/profile"
)

// readPerfScript reads the output of perf script. Like stackcollapse-perf.pl, it does not
// distinguish threads. Each sample is a line with the task and the event, lines with the
// frames, innermost first, and an empty line. Without call chains, the only frame is on
// the first line.
//
//	tar 4242/4243 [001] 24082.558395:    2004008 cpu-clock:
//	        ffffffff81355977 copy_process+0x1107 ([kernel.kallsyms])
//	                    113c leaf+0x13 (/usr/bin/tar)
//
// The first value counts samples. Each event adds another value, the sum of its periods.
func readPerfScript(r *bufio.Reader) (*profile.Profile, error) {
	c := newCollector(profile.ValueType{Type: "samples", Unit: "count"})
	in := lines{r: r, limit: maxEventLine}
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

// maxEventLine is the maximum length of a line of perf script or bpftrace, in bytes: a
// frame, or the head of a sample.
const maxEventLine = 1 << 20

// Lines of perf script. The task's name may contain spaces, so they are recognized by
// what follows: process and thread IDs, an optional CPU, and a time or an event.
var (
	perfHeader = regexp.MustCompile(`^\s*(\S.*?)\s+(-?\d+)(?:/(\d+))?\s+(?:\[(\d+)\]\s+)?(?:[.\w]{4,}\s+)?(?:(\d+\.\d+):\s*)?(?:(\d+)\s+)?(\S+?):(?:\s+(.*))?$`)
	// perfFrame matches an address, a symbol with its offset, and the file if shown. perf
	// script indents frames by a tab, and tasks by spaces.
	perfFrame = regexp.MustCompile(`^\s+([0-9a-f]{1,16}) (.+?)(?: \(([^()]*(?:\([^()]*\))?[^()]*)\))?$`)
	// symbolOffset matches the offset after a function's name, hexadecimal in perf and
	// decimal in bpftrace.
	symbolOffset = regexp.MustCompile(`\+(0x[0-9a-f]+|[0-9]+)$`)
)

// isHeader reports whether a line begins a sample.
func isHeader(line string) bool {
	m := perfHeader.FindStringSubmatch(line)
	if len(m) == 0 || strings.HasPrefix(m[7], "PERF_RECORD_") {
		return false
	}
	return m[4] != "" || m[5] != "" || m[6] != "" // a CPU, time or period
}

// isFrame reports whether a line is a frame.
func isFrame(line string) bool { return perfFrame.MatchString(line) }

// perfSample is a partially read sample.
type perfSample struct {
	task   profile.Task
	cpu    int
	event  string
	period int64
	frames []readFrame  // innermost first
	callee profile.Kind // of the last instruction in frames, if there is one
	calls  bool         // there is one
}

// readFrame is a frame that was read. An inlined one has neither a file nor a place of
// its own.
type readFrame struct {
	profile.Frame
	hasFile bool
}

// perfScriptFrame is a frame in the output of perf script.
type perfScriptFrame struct {
	address uint64
	name    string // empty if unknown
	offset  uint64
	file    string
	inlined bool
}

// parseHeader parses a line accepted by isHeader.
func (c *collector) parseHeader(line string) *perfSample {
	m := perfHeader.FindStringSubmatch(line)
	s := &perfSample{cpu: -1, event: m[7], period: 1}
	s.task.Comm = m[1]
	if m[3] != "" { // a single ID is the thread's
		s.task.PID, _ = strconv.Atoi(m[2]) // 0 if it is too large
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

// add adds the next outer frame of a sample.
func (c *collector) add(s *perfSample, f perfScriptFrame) {
	// Keep the frames next to the root. The others do not matter in a truncated stack.
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

// parseFrame parses a line of a call chain.
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

// cutOffset splits the offset off a symbol.
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
	var outer readFrame // the frame that contains an inlined one
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

// eventName returns an event without perf's modifiers: "cycles" for "cycles:Pu".
func eventName(event string) string {
	if name, _, ok := strings.Cut(event, ":"); ok && !strings.Contains(name, "/") && len(event)-len(name) <= 5 {
		return name
	}
	return event
}

// madeFrame converts a frame to the profile's form.
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
