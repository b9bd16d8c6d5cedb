package decode

import (
	"bufio"
	"errors"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/profile"
)

// readPerfScript reads the output of perf script, whatever its -F chooses. Like
// stackcollapse-perf.pl, it does not distinguish threads. Each sample is a head, see
// [perfHead], lines with the frames, innermost first, and an empty line. Without call chains,
// the only frame is on the first line.
//
//	tar 4242/4243 [001] 24082.558395:    2004008 cpu-clock:
//	        ffffffff81355977 copy_process+0x1107 ([kernel.kallsyms])
//	                    113c leaf+0x13 (/usr/bin/tar)
//
// The values of each event are the number of its samples and the sum of their periods, see
// [profile.Collector.CountEvent]. Lines that belong to no sample, and that perf does not write, are
// counted as [profile.LossUnread].
func readPerfScript(r *bufio.Reader) (*profile.Profile, error) {
	s := &scriptReader{
		collector: newCollector(),
		fractions: map[string]float64{},
		deferred:  map[string][]*perfSample{},
	}
	head, _ := r.Peek(sniffed) // an error comes again
	s.bareFrames = !emptyLine.Match(head)
	s.tabs = tabbedFrame.Match(head)
	in := lines{r: r, limit: maxEventLine}
	for {
		line, ok, err := in.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		unread := s.unread
		line, onlyBranches, err := cutTail(line)
		switch {
		case err != nil:
			return nil, err
		case !onlyBranches:
			s.line(line)
		case s.open == nil || len(s.open.frames) == 0:
			s.unread++ // they follow no call chain
		default:
			s.open.closed = true
		}
		if s.unread == unread && line != "" && line[0] != '#' && s.loose == "" {
			s.understood++
		}
	}
	s.end()
	s.bareHead()
	s.dropLoose()
	s.unread += uint64(len(s.bare))
	s.flush()
	s.NameEvents(eventName)
	if s.unread > 0 && s.samples == 0 && s.lost == 0 {
		return nil, errNoHeads
	}
	certain, likely := s.understood, uint64(0)
	if !s.heads && !s.bareHeads && !s.framed {
		certain, likely = 0, s.understood
	}
	if err := s.foreignText(certain, likely); err != nil {
		return nil, err
	}
	return s.profile(profile.Meta{})
}

// emptyLine matches a line without anything between others.
var emptyLine = regexp.MustCompile(`\n[ \t\r]*\n\s*\S`)

// tabbedFrame matches a frame as perf writes it in a call chain.
var tabbedFrame = regexp.MustCompile(`(^|\n)\t {0,15}[0-9a-f]{1,16}[ \r\n]`)

// errNoHeads is the error of a text in which nothing was recognized.
var errNoHeads = errors.New("no line is the head of a sample or a frame, as perf script writes them")

// maxEventLine is the maximum length of a line of perf script or bpftrace, in bytes: a
// frame, or the head of a sample.
const maxEventLine = 1 << 20

// maxDeferred is the maximum number of samples that wait for their user callers.
const maxDeferred = 1 << 12

// scriptReader reads the lines of perf script.
type scriptReader struct {
	*collector
	open *perfSample // the sample whose lines are being read, or nil
	// fractions has what is left of the fractional periods of an event, less than 1.
	fractions map[string]float64
	heads     bool   // a head with a time, a CPU or an event was seen
	timed     bool   // one with a time
	records   bool   // the last line was a record other than a sample, or a part of it
	loose     string // the last line, if it may be a head of few fields
	bareHeads bool   // a head with a thread ID, and maybe a period, was seen
	framed    bool   // a frame with a file or an offset was seen
	// bareFrames is set if no empty line ends a call chain: frames without heads, after a blank instead of
	// a tab, are then a sample each (-F ip,sym without call chains).
	bareFrames bool
	tabs       bool // frames of call chains have a tab before them
	// bare has samples without frames that have such heads, until one with frames is seen.
	bare    []*perfSample
	samples uint64
	// understood is the number of lines that are heads and frames, or other parts of samples.
	understood uint64

	// deferred has samples by the cookie of the user callers that perf writes later.
	deferred map[string][]*perfSample
	waiting  int
}

// perfSample is a partially read sample.
type perfSample struct {
	head   perfHead
	frames []readFrame  // innermost first
	callee profile.Kind // of the last instruction in frames, if there is one
	calls  bool         // there is one
	cookie string       // of the user callers that follow later, if any
	closed bool         // what follows the frames was seen
}

// readFrame is a frame that was read. An inlined one has neither a file nor a place of
// its own.
type readFrame struct {
	perfScriptFrame
	callAfter bool // the address is a return address
}

// perfScriptFrame is a frame in the output of perf script.
type perfScriptFrame struct {
	address uint64
	name    string // empty if unknown
	offset  uint64
	file    string
	source  string // file name of the source, empty if unknown
	srcLine int
	inlined bool
}

// isPerfScript reports whether a line is one that perf script writes, and no other tool.
func isPerfScript(line string) bool {
	line, onlyBranches, err := cutTail(line)
	if onlyBranches || err != nil {
		return true
	}
	switch {
	case strings.HasPrefix(line, "PERF_RECORD_"):
		return true
	case line[0] == '\t':
	case instructionColumn(line) > 0, trimmedFrame.MatchString(line):
		return true
	case isDataLine(line):
		return true
	default:
		if _, ok := parseHead(line); ok {
			return true
		}
	}
	_, ok := parseFrame(line)
	return ok
}

// isDataLine reports whether a line is a sample with data before its instruction.
func isDataLine(line string) bool {
	at := dataColumn(line)
	if dataHead(line) {
		at = 0
	} else if at < 0 {
		return false
	}
	_, ok := inlineFrame(line[at:])
	return ok
}

// trimmedFrame matches a frame without the blanks before it.
var trimmedFrame = regexp.MustCompile(`^[0-9a-f]{8,16} \S.* \([/[].*\)$`)

// line processes a line.
func (s *scriptReader) line(line string) {
	text := strings.TrimLeft(line, " \t\r\n\f")
	if text == "" {
		s.bareHead()
		s.dropLoose()
		s.records = false
		// Some versions of perf write an empty line between a head and its frames.
		if s.open != nil && len(s.open.frames) > 0 {
			s.end()
		}
		return
	}
	indent := len(line) - len(text)
	if line[0] == '\t' {
		s.tabbed(line, indent)
		return
	}
	if i := strings.Index(line, "PERF_RECORD_"); i >= 0 && (i == 0 || line[i-1] == ' ') {
		s.record(line[i:])
		return
	}
	head, ok := parseHead(line)
	if line[0] == '#' && (!ok || !head.timed || !head.hasID) {
		return // a comment
	}
	if ok && head.timed {
		s.begin(head)
		return
	}
	if !ok && line[0] == ' ' && !isAddress(line, indent) && (instructionColumn(line) > 0 || isDataLine(line)) {
		s.looseHead(line)
		return
	}
	if !ok && indent == 2 && s.source(text) {
		return
	}
	if !ok && s.tabs && (dataHead(line) || line[0] == ' ' && dataColumn(line) > 0) && (s.open == nil || len(s.open.frames) == 0 || !isPart(line, text)) {
		s.looseHead(line)
		return
	}
	if f, isFrame := parseFrame(line); isFrame && (!ok || isAddress(line, indent)) {
		s.frame(f, isAddress(line, indent), line[0] == ' ' && indent+len(firstOf(text)) == ipWidth+1)
		return
	}
	if f, isFrame := parseFrame(" " + line); isFrame && indent == 0 && !ok && (s.open != nil || s.loose != "") && isColumn(line) {
		s.frame(f, false, false) // without the blanks before it
		return
	}
	switch {
	case ok:
		s.begin(head)
	case s.part(line, text):
	default:
		s.looseHead(line)
	}
}

// ipWidth is the width of addresses, and tabWidth that of the tab before a frame, where tabs were
// replaced by blanks.
const ipWidth, tabWidth = 16, 8

// isAddress reports whether the first word of a line that begins with blanks ends where addresses
// do: those of call chains, or of samples without one.
func isAddress(line string, indent int) bool {
	word, _ := firstWord(line)
	stop := indent + len(word)
	return stop == ipWidth+1 || stop == ipWidth+tabWidth
}

// isColumn reports whether a line begins with an address that needs no blanks before it.
func isColumn(line string) bool {
	word, _, _ := strings.Cut(line, " ")
	word, _, _ = strings.Cut(word, "\t")
	return len(word) >= 8
}

// tabbed processes a line that begins with a tab: a frame, an instruction of +brstackinsn, or
// perf's notes about them.
func (s *scriptReader) tabbed(line string, indent int) {
	if f, ok := parseFrame(line); ok {
		s.frame(f, isAddress(line, indent), false)
		return
	}
	// Versions of 2017 print inlined functions as lines without an address.
	if name, ok := strings.CutPrefix(line, inlineIndent); ok && name != "" && name[0] != ' ' && s.open != nil && len(s.open.frames) > 0 {
		s.inlined(name)
		return
	}
	if s.open != nil || s.samples > 0 || s.records {
		if isInstruction(line[1:]) || s.part(line, line[indent:]) {
			return
		}
	}
	s.dropLoose()
	s.unread++
}

// inlineIndent stands for the address of an inlined function.
const inlineIndent = "\t                 "

// inlined adds a function that is inlined at the address of the last frame, which perf lists
// before it, and the functions from the innermost one to that of the frame itself.
func (s *scriptReader) inlined(name string) {
	last := len(s.open.frames) - 1
	f := s.open.frames[last]
	if name == f.name {
		return
	}
	s.open.frames = append(s.open.frames, f)
	s.open.frames[last] = readFrame{perfScriptFrame{name: name, inlined: true}, f.callAfter}
}

// isInstruction reports whether text is an instruction of +brstackinsn.
func isInstruction(text string) bool {
	word, _, ok := strings.Cut(text, "\t")
	return ok && len(word) == ipWidth && isDigits(word, hexDigits)
}

// record processes a record other than a sample, such as those of --show-mmap-events.
func (s *scriptReader) record(text string) {
	s.dropLoose()
	s.records, s.heads = true, true
	kind, rest, _ := strings.Cut(text, " ")
	if kind == "PERF_RECORD_LOST" || kind == "PERF_RECORD_LOST_SAMPLES" {
		if n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(rest), "lost "), 10, 64); err == nil {
			s.lost = addUpTo(s.lost, n)
		}
	}
}

// addUpTo returns a+b, or the largest number.
func addUpTo(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// begin begins a sample.
func (s *scriptReader) begin(head perfHead) {
	s.end()
	s.dropLoose()
	if strings.Contains(head.rest, "\tmetric: ") || strings.HasPrefix(head.rest, "metric: ") {
		return // follows the sample
	}
	s.heads, s.timed, s.records = true, s.timed || head.timed, false
	s.open = &perfSample{head: head}
}

// looseHead notes a line that is a head if a frame follows: one of few fields, such as those of
// -F comm,ip,sym, or of one line that shows an instruction. If other samples have more fields, such
// as the CPU that only tracepoints have, it needs a thread ID and its place between samples.
func (s *scriptReader) looseHead(line string) {
	s.dropLoose()
	if s.inFields() {
		return
	}
	head, one := parseLooseHead(line)
	if s.heads && (s.timed || !head.hasID || !one && s.open != nil && len(s.open.frames) > 0) {
		s.unread++
		return
	}
	if !one {
		s.loose = line
		return
	}
	s.end()
	s.open = &perfSample{head: head}
}

// inFields reports whether the last line had the fields of a tracepoint. A line that is not understood then
// continues them: the name of a task may have line ends.
func (s *scriptReader) inFields() bool {
	return s.open != nil && len(s.open.frames) == 0 && strings.Contains(s.open.head.event, ":") && strings.Contains(s.open.head.rest, "=")
}

// bareHead takes the noted line, which an empty one follows, for the head of a sample without frames
// if all heads have a thread ID and no more. Whether they do is decided with the first that has frames.
func (s *scriptReader) bareHead() {
	head, _ := parseLooseHead(s.loose)
	if s.loose == "" || !head.hasID || s.open != nil || len(s.bare) == maxDeferred {
		return
	}
	s.loose = ""
	s.bare = append(s.bare, &perfSample{head: head})
	s.addBare()
}

// addBare adds the samples without frames if other samples have heads like theirs.
func (s *scriptReader) addBare() {
	if !s.bareHeads {
		return
	}
	for _, b := range s.bare {
		s.sample(b)
	}
	s.bare = s.bare[:0]
}

// dropLoose counts the noted line as one that was not understood.
func (s *scriptReader) dropLoose() {
	if s.loose != "" {
		s.loose = ""
		s.unread++
	}
}

// frame adds the next outer frame of the sample, or begins a sample without a head, as -F ip,sym
// writes them. aligned means that its address is where perf writes addresses, blank that only a blank is
// before its columns.
func (s *scriptReader) frame(f perfScriptFrame, aligned, blank bool) {
	placed := f.offset > 0 || f.file != "" && (strings.IndexByte("/[", f.file[0]) >= 0 || !strings.Contains(f.file, " "))
	s.framed = s.framed || placed
	sure := aligned || placed
	if (s.bareFrames && blank || s.open != nil && s.open.closed) && !s.heads && s.loose == "" {
		s.end() // the sample before this one
	}
	if s.loose != "" && sure {
		s.end()
		head, _ := parseLooseHead(s.loose)
		s.loose = ""
		s.bareHeads = s.bareHeads || head.hasID
		s.addBare()
		s.open = &perfSample{head: head}
	}
	switch {
	case s.loose != "", s.open == nil && (s.heads || !sure):
		s.dropLoose()
		s.unread++
		return
	case s.open == nil:
		s.open = &perfSample{head: perfHead{period: 1}}
	}
	s.add(s.open, f)
}

// add adds the next outer frame of a sample.
func (s *scriptReader) add(to *perfSample, f perfScriptFrame) {
	if name, ok := strings.CutSuffix(f.name, "(cookie)"); ok && strings.TrimSpace(name) == "" {
		to.cookie = strconv.FormatUint(f.address, 16)
		return
	}
	// Keep the frames next to the root. The others do not matter in a truncated stack.
	const kept = profile.MaxDepth + 1
	if len(to.frames) == 2*kept {
		to.frames = append(to.frames[:0], to.frames[kept:]...)
	}
	// perf prints return addresses. User code that entered the kernel did not call it.
	kind := f.kind()
	made := readFrame{f, to.calls && (to.callee != profile.KindKernel || kind == profile.KindKernel)}
	if !f.inlined {
		to.callee, to.calls = kind, true
	}
	to.frames = append(to.frames, made)
}

// source processes a line of +srcline, which says where the last frame is in the source:
//
//	file.c:12 (discriminator 3)
func (s *scriptReader) source(text string) bool {
	if s.open == nil {
		return false
	}
	place, inlined := strings.CutSuffix(text, " (inlined)")
	if i := strings.LastIndex(place, " (discriminator "); i > 0 && strings.HasSuffix(place, ")") {
		place = place[:i]
	}
	colon := strings.LastIndexByte(place, ':')
	file, line := "", 0
	switch n, err := strconv.Atoi(place[colon+1:]); {
	case colon >= 0 && err == nil && n >= 0:
		if place[:colon] != "" && place[:colon] != "??" {
			file, line = place[:colon], n
		}
	case colon >= 0 && place[colon+1:] == "?":
	case strings.HasSuffix(place, "]") && isDigits(place[strings.LastIndexByte(place, '[')+1:len(place)-1], hexDigits):
	case isDigits(strings.TrimPrefix(place[strings.LastIndexByte(place, '+')+1:], "0x"), hexDigits) && strings.Contains(place, "+"):
	default:
		return false
	}
	if n := len(s.open.frames); n > 0 {
		f := &s.open.frames[n-1]
		f.source, f.srcLine = file, line
		f.inlined = f.inlined || inlined
	} else {
		s.open.head.source, s.open.head.srcLine = file, line
	}
	return true
}

// part reports whether a line is a part of a sample, or of a record, that has no frames.
func (s *scriptReader) part(line, text string) bool {
	if s.records && (strings.HasPrefix(text, "[") || strings.Contains(text, "/")) {
		return true // namespaces
	}
	if strings.HasPrefix(text, "BPF output:") || strings.HasPrefix(text, "BPF string:") || strings.HasPrefix(line, "                  ") && len(text) > 5 && text[4] == ':' && isDigits(text[:4], hexDigits) {
		return true // follows an empty line
	}
	if s.open == nil && s.samples == 0 || !isPart(line, text) {
		return false
	}
	if s.open != nil && len(s.open.frames) > 0 && text[0] != '|' { // source code follows each frame
		s.open.closed = true
	}
	return true
}

// begin of the lines that perf writes after the frames of a sample.
var partPrefixes = []string{"ABI:", "ilen:", "insn:", "IPC:", "metric:", "mismatch of LBR data and executable", "... not reaching sample ..."}

// isPart reports whether a line of a sample shows registers, instructions, addresses or source code.
func isPart(line, text string) bool {
	for _, p := range partPrefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	word, rest, _ := strings.Cut(text, " ")
	switch {
	case strings.Contains(word, ":0x"): // registers
		return true
	case text[0] == '|': // source code
		number, _, _ := strings.Cut(text[1:], " ")
		return isDigits(number, decimalDigits)
	case line[0] == '\t' && (strings.HasSuffix(text, ":") || strings.Contains(text, ":\t")): // a function of +brstackinsn
		return true
	case isPageSize(word) && (rest == "" || isPageSize(strings.TrimSpace(rest))):
		return true
	case strings.HasPrefix(line, "\t\t"): // +disasm
		return true
	}
	if isDigits(word, hexDigits) && len(line)-len(text)+len(word) == ipWidth { // +phys_addr
		rest = strings.TrimSpace(rest)
		first, second, _ := strings.Cut(rest, " ")
		return rest == "" || isPageSize(first) && (second == "" || isPageSize(second))
	}
	return false
}

// isPageSize reports whether a word is the size of a page, as perf writes it.
func isPageSize(word string) bool {
	if word == "N/A" {
		return true
	}
	n := len(word) - 1
	return n > 0 && strings.IndexByte("BKMGTPE", word[n]) >= 0 && isDigits(word[:n], decimalDigits)
}

// end ends the sample that is being read.
func (s *scriptReader) end() {
	last := s.open
	s.open = nil
	if last == nil {
		return
	}
	if len(last.frames) == 0 && last.cookie == "" {
		if f, ok := inlineFrame(last.head.rest); ok {
			f.source, f.srcLine = last.head.source, last.head.srcLine
			s.add(last, f)
		}
	}
	switch {
	case last.head.callers != "":
		s.complete(last.head.callers, last.frames)
	case last.cookie == "":
		s.sample(last)
	default:
		if s.waiting == maxDeferred {
			s.flush()
		}
		s.deferred[last.cookie] = append(s.deferred[last.cookie], last)
		s.waiting++
	}
}

// complete adds the user callers to the samples that wait for them.
func (s *scriptReader) complete(cookie string, callers []readFrame) {
	waiting := s.deferred[cookie]
	if len(waiting) == 0 {
		s.unread++
		return
	}
	delete(s.deferred, cookie)
	s.waiting -= len(waiting)
	for _, w := range waiting {
		for _, f := range callers {
			s.add(w, f.perfScriptFrame)
		}
		s.sample(w)
	}
}

// flush adds the samples that wait for their user callers without them.
func (s *scriptReader) flush() {
	for _, cookie := range slices.Sorted(maps.Keys(s.deferred)) { // the events have the same order each time
		for _, w := range s.deferred[cookie] {
			s.sample(w)
		}
	}
	clear(s.deferred)
	s.waiting = 0
}

// sample adds a sample.
func (s *scriptReader) sample(from *perfSample) {
	s.samples++
	at := profile.Sample{CPU: -1, Task: s.Task(from.head.task)}
	var outer profile.Frame // the frame that contains an inlined one
	for i := len(from.frames) - 1; i >= 0 && !s.IsCut(at.Stack); i-- {
		f := s.madeFrame(from.frames[i].perfScriptFrame)
		f.Return = from.frames[i].callAfter
		if from.frames[i].file != "" || i == len(from.frames)-1 {
			outer = f
		}
		if f.Inlined {
			f.Mapping, f.Kind, f.Address, f.Return = outer.Mapping, outer.Kind, outer.Address, outer.Return
		}
		at.Stack = s.Push(at.Stack, s.Frame(f))
	}
	event, n := from.head.event, from.head.period
	if event == "" {
		s.Count(at, s.Value(profile.ValueType{Type: "samples", Unit: "count"}), 1)
		return
	}
	if from.head.fraction > 0 {
		rest := s.fractions[event] + from.head.fraction
		if rest >= 1 {
			rest--
			n++
		}
		s.fractions[event] = rest
	}
	value := profile.ValueType{Type: event, Unit: "count"} // see [eventName] for its name in the profile
	if name := eventName(event); name == "cpu-clock" || name == "task-clock" {
		value.Unit = "nanoseconds"
	}
	s.CountEvent(at, value, n)
}

// parseFrame parses a line of a call chain: an address, a symbol with its offset and the file, if
// shown. perf script indents frames by a tab, and tasks by spaces.
func parseFrame(line string) (f perfScriptFrame, ok bool) {
	text := strings.TrimLeft(line, " \t\r\n\f")
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		end = len(text)
	}
	if len(text) == len(line) || end > ipWidth || !isDigits(text[:end], hexDigits) {
		return f, false
	}
	switch rest := text[end:]; {
	case line[0] == '\t' && end == ipWidth && rest != "" && rest[0] == '\t':
		return f, false // an instruction, see isInstruction
	case line[0] == '\t' && len(line) > 1 && line[1] == '\t' && end < 5:
		return f, false // assembly: "add"
	case strings.HasPrefix(rest, dataSource):
		return f, false // of a head of few fields
	case line[0] != '\t' && (isPart(line, text) || strings.TrimSpace(rest) == "" && !isAddress(line, len(line)-len(text))):
		return f, false // a number
	}
	rest := text[end:]
	if line[0] == ' ' && len(line)-len(rest) == ipWidth+1 { // without a call chain, other fields follow
		rest = cutTrailing(rest)
	}
	f = location(rest)
	f.address, _ = strconv.ParseUint(text[:end], 16, 64) // at most 16 digits
	if line[0] == ' ' && !isAddress(line, len(line)-len(text)) {
		// Fields of a head may look so, and numbered lines: "7 [001] ".
		return f, f.file != "" || f.offset > 0 || f.inlined || end > idWidth
	}
	return f, true
}

// idWidth is the width of the longest thread ID.
const idWidth = 7

// location parses what follows an address: a symbol with its offset and the file, if shown.
func location(text string) (f perfScriptFrame) {
	symbol, file := cutFile(text)
	f.file = file
	f.name, f.offset = cutOffset(strings.TrimSpace(symbol))
	switch {
	case file == "inlined":
		f.file, f.inlined = "", true
	case len(file) > 3 && file[len(file)-1] != ')': // +dsoff
		f.file = cutHexOffset(file)
	}
	if f.name == "" || f.name == "[unknown]" {
		f.name = ""
	} else if _, err := strconv.ParseUint(f.name, 0, 64); err == nil {
		f.name = "" // bpftrace repeats the address
	}
	return f
}

// cutHexOffset cuts +0x… off the end of a file's name.
func cutHexOffset(file string) string {
	if i := strings.LastIndex(file, "+0x"); i > 0 && isDigits(file[i+3:], hexDigits) {
		return file[:i]
	}
	return file
}

const (
	decimalDigits = "0123456789"
	hexDigits     = decimalDigits + "abcdef"
)

// isDigits reports whether text consists of the given digits.
func isDigits(text, digits string) bool { return text != "" && strings.Trim(text, digits) == "" }

// cutFile splits the file in parentheses off a symbol. The file may contain pairs of them:
// "f (/bin/x (deleted))".
func cutFile(text string) (symbol, file string) {
	text = strings.TrimRight(text, " \t")
	inside, ok := strings.CutSuffix(text, ")")
	if !ok {
		return text, ""
	}
	open := openParenthesis(inside)
	if open < 0 || open > 0 && text[open-1] != ' ' && text[open-1] != '\t' {
		// Not in pairs.
		if open = max(strings.Index(inside, " (/"), strings.Index(inside, " ([")) + 1; open == 0 {
			return text, ""
		}
	}
	if open+1 == len(inside) {
		return text, ""
	}
	return strings.TrimRight(text[:open], " \t"), inside[open+1:]
}

// openParenthesis returns the index of the parenthesis that the end of text closes, or -1.
func openParenthesis(text string) int {
	depth := 1
	for i := len(text) - 1; i >= 0; i-- {
		switch text[i] {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
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

// eventName returns an event without perf's modifiers and the settings of a clock: "cycles" for
// "cycles:Pu", "cpu-clock" for "cpu-clock/freq=500/".
func eventName(event string) string {
	for _, clock := range []string{"cpu-clock", "task-clock"} {
		if strings.HasPrefix(event, clock+"/") {
			return clock
		}
	}
	if m := modified.FindStringSubmatch(event); m != nil && !probe.MatchString(event) {
		return m[1]
	}
	return event
}

var (
	// modified matches events with modifiers, all that perf 7.2 has. Those of PMUs, such as
	// "cpu/event=0x3c/u", keep them.
	modified = regexp.MustCompile(`^([^:/]+):[ukhGHpPSDIWebRX]+$`)
	// probe matches probes, whose names look like modifiers if they are short: "probe:up".
	probe = regexp.MustCompile(`^(k|u|kret|uret)?probes?(_[^:]*)?:|^sdt_[^:]*:`)
)

// kind returns the kind of code at a frame.
func (f perfScriptFrame) kind() profile.Kind {
	switch {
	case f.isJIT():
		return profile.KindJIT
	case isKernelFile(f.file) || f.address >= 1<<63:
		return profile.KindKernel
	}
	return profile.KindUser
}

// isJIT reports whether the code was generated at run time.
func (f perfScriptFrame) isJIT() bool {
	return strings.HasSuffix(f.file, ".map") || strings.HasPrefix(f.file, "//anon") || f.file == "[anon]"
}

// madeFrame converts a frame to the profile's form.
func (c *collector) madeFrame(f perfScriptFrame) profile.Frame {
	made := profile.Frame{Address: f.address, Offset: f.offset, Inlined: f.inlined, Kind: f.kind(), Line: f.srcLine}
	switch {
	case f.isJIT():
		made.Mapping = c.Mapping(profile.Mapping{Path: profile.JITPath})
	case f.file != "" && f.file != "[unknown]":
		made.Mapping = c.Mapping(profile.Mapping{Path: f.file})
	}
	if f.name != "" {
		made.Function = c.Function(profile.Function{Name: f.name, SystemName: f.name, File: f.source})
	}
	return made
}

// chainHead matches the beginning of a text that is a line of any kind, and a frame in perf
// script's columns.
var chainHead = regexp.MustCompile(`^[^\t\n][^\n]*\n\t {0,15}[0-9a-f]{1,16} [^\n]`)
