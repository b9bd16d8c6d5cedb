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
// The values of each event are the number of its samples and the sum of their periods, see
// [profile.Collector.CountEvent].
func readPerfScript(r *bufio.Reader) (*profile.Profile, error) {
	c := newCollector()
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
		default:
			f, ok := parseFrame(line)
			if !ok {
				continue
			}
			if s == nil {
				return nil, in.errorf("a frame without a sample: %.60q", line)
			}
			c.add(s, f)
		}
	}
}

// maxEventLine is the maximum length of a line of perf script or bpftrace, in bytes: a
// frame, or the head of a sample.
const maxEventLine = 1 << 20

// perfHeader matches the head of a sample. The task's name may contain spaces, so it is
// recognized by what follows: process and thread IDs, an optional CPU, and a time or an event.
var perfHeader = regexp.MustCompile(`^\s*(\S.*?)\s+(-?\d+)(?:/(\d+))?\s+(?:\[(\d+)\]\s+)?(?:[.\w]{4,}\s+)?(?:(\d+\.\d+):\s*)?(?:(\d+)\s+)?(\S+?):(?:\s+(.*))?$`)

// isHeader reports whether a line begins a sample.
func isHeader(line string) bool {
	m := perfHeader.FindStringSubmatch(line)
	if len(m) == 0 || strings.HasPrefix(m[7], "PERF_RECORD_") {
		return false
	}
	return m[4] != "" || m[5] != "" || m[6] != "" // a CPU, time or period
}

// isFrame reports whether a line is a frame.
func isFrame(line string) bool {
	_, ok := parseFrame(line)
	return ok
}

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

// parseFrame parses a line of a call chain: an address, a symbol with its offset, and the file
// if shown. perf script indents frames by a tab, and tasks by spaces.
func parseFrame(line string) (f perfScriptFrame, ok bool) {
	text := strings.TrimLeft(line, " \t\r\n\f")
	address, symbol, _ := strings.Cut(text, " ")
	if len(text) == len(line) || symbol == "" || !isDigits(address, hexDigits) || len(address) > 16 {
		return f, false
	}
	f.address, _ = strconv.ParseUint(address, 16, 64) // at most 16 digits
	symbol, f.file = cutFile(symbol)
	f.name, f.offset = cutOffset(strings.TrimSpace(symbol))
	if f.file == "inlined" {
		f.file, f.inlined = "", true
	}
	if _, err := strconv.ParseUint(f.name, 0, 64); err == nil || f.name == "[unknown]" {
		f.name = "" // bpftrace repeats the address
	}
	return f, true
}

const (
	decimalDigits = "0123456789"
	hexDigits     = decimalDigits + "abcdef"
)

// isDigits reports whether text consists of the given digits.
func isDigits(text, digits string) bool { return text != "" && strings.Trim(text, digits) == "" }

// cutFile splits the file in parentheses off a symbol. The file may contain one pair of them:
// "f (/bin/x (deleted))".
func cutFile(text string) (symbol, file string) {
	inside, ok := strings.CutSuffix(text, ")")
	if !ok {
		return text, ""
	}
	open := strings.LastIndexAny(inside, "()")
	if open >= 0 && inside[open] == ')' {
		open = strings.LastIndexAny(inside[:open], "()")
		if open < 0 || inside[open] == ')' {
			return text, ""
		}
		open = strings.LastIndexAny(inside[:open], "()")
	}
	if open < 2 || inside[open] == ')' || inside[open-1] != ' ' {
		return text, ""
	}
	return inside[:open-1], inside[open+1:]
}

// cutOffset splits the offset off a symbol, which is hexadecimal in perf and decimal in
// bpftrace.
func cutOffset(symbol string) (name string, offset uint64) {
	plus := strings.LastIndexByte(symbol, '+')
	if plus <= 0 {
		return symbol, 0
	}
	text := symbol[plus+1:]
	hex, isHex := strings.CutPrefix(text, "0x")
	if isHex && !isDigits(hex, hexDigits) || !isHex && !isDigits(text, decimalDigits) {
		return symbol, 0
	}
	offset, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return symbol, 0
	}
	return symbol[:plus], offset
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
	unit := "count"
	if s.event == "cpu-clock" || s.event == "task-clock" {
		unit = "nanoseconds"
	}
	c.CountEvent(at, profile.ValueType{Type: eventName(s.event), Unit: unit}, s.period)
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
