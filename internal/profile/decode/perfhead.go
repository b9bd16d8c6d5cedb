package decode

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"fulgur/internal/profile"
)

// perfHead is the first line of a sample. The fields have this order in all versions of perf,
// and -F chooses which of them are there:
//
//	VM:PID VCPU:N COMM PID/TID [CPU] MISC DATE CLOCK TIME: PERIOD EVENT: REST
//
// There is a blank after each. Numbers and the event are padded on the left, MISC and the
// process ID in front of a thread ID on the right. The task's name and the event may contain
// anything.
type perfHead struct {
	task     profile.Task
	event    string  // empty if unknown
	period   int64   // 1 if unknown
	fraction float64 // that the period has in addition, less than 1
	// rest is what follows the event, from the column after its blank: flags, fields of a
	// tracepoint, a data address, and in samples without a call chain the instruction.
	rest    string
	callers string // the cookie of samples whose user callers follow
	source  string // of the instruction in rest, as srcLine
	srcLine int

	timed, hasID bool // a time, an ID
}

// parseHead parses a head that can be told from other lines: by its time, or by a thread ID or
// CPU before an event.
func parseHead(line string) (h perfHead, ok bool) {
	h.period = 1
	if start, end := timeWord(line); end > 0 {
		h.before(line[:column(line, start, end-1, timeWidth)])
		h.timed = true
		h.after(line[min(end+1, len(line)):])
		return h, true
	}
	return parseUntimed(line)
}

// timeDigits are the digits of a time's fraction, unless perf writes nanoseconds.
const timeDigits = 6

// timeWord returns the place of the time in a head: seconds with a fraction and a colon. It is
// the first that has a thread ID or a CPU before it, as tasks and events may contain such words. Without
// one, it has all digits: versions are no times.
func timeWord(line string) (start, end int) {
	for from, tries := 0, 0; ; {
		i := strings.IndexByte(line[from:], ':')
		if i < 0 || tries == maxTries {
			return start, end
		}
		i += from
		from = i + 1
		if from < len(line) && line[from] != ' ' && line[from] != '\t' {
			continue
		}
		word := strings.LastIndexAny(line[:i], " \t") + 1
		whole, part, ok := strings.Cut(line[word:i], ".")
		if !ok || !isDigits(whole, decimalDigits) || !isDigits(part, decimalDigits) {
			continue
		}
		tries++
		var h perfHead
		if h.before(line[:word]); h.hasID {
			return word, from
		}
		if end == 0 && len(part) >= timeDigits {
			start, end = word, from
		}
	}
}

// before parses the fields before the time, from the last to the first.
func (h *perfHead) before(text string) {
	end := len(text)
	text, word := lastWord(text)
	// A date and a clock.
	if strings.Count(word, ":") == 2 && isDigits(strings.NewReplacer(":", "", ".", "").Replace(word), decimalDigits) {
		if rest, date := lastWord(text); strings.Count(date, "-") == 2 && isDigits(strings.ReplaceAll(date, "-", ""), decimalDigits) {
			end = len(rest) + 1
			text, word = lastWord(rest)
		}
	}
	if rest, earlier := lastWord(text); afterMisc(word, earlier, end-len(text)-1) {
		text, word = rest, earlier
	}
	if isCPU(word) || isLatencyCPU(text+" "+word) {
		h.hasID = true
		text, word = lastWord(text)
	}
	if isID(word) {
		h.hasID = true
		if pid, _, ok := strings.Cut(word, "/"); ok { // a single ID is the thread's
			h.task.PID = processID(pid)
		}
	} else if word != "" {
		text = strings.TrimRight(text+" "+word, " ")
		if text[0] == ' ' {
			text = strings.TrimLeft(text, " \t")
		}
	}
	h.task.Comm = comm(text)
}

// processID returns the process ID of a head, 0 if it is too large or unknown.
func processID(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return n
}

// comm returns the task's name without the virtual machine before it, and blanks around it.
func comm(text string) string {
	text = strings.TrimSpace(text)
	for _, name := range []string{"VM:", "VCPU:"} {
		rest, ok := strings.CutPrefix(text, name)
		if !ok {
			continue
		}
		word, rest := firstWord(rest)
		if isDigits(word, decimalDigits) {
			text = strings.TrimSpace(rest)
		}
	}
	return text
}

// lastWord splits the last word off text.
func lastWord(text string) (rest, word string) {
	text = strings.TrimRight(text, " \t")
	i := strings.LastIndexAny(text, " \t") + 1
	return text[:max(i-1, 0)], text[i:]
}

// firstWord splits the first word off text.
func firstWord(text string) (word, rest string) {
	text = strings.TrimLeft(text, " \t")
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

// isCPU reports whether a word is a CPU: "[001]".
func isCPU(word string) bool {
	return len(word) > 2 && word[0] == '[' && word[len(word)-1] == ']' && isInteger(word[1:len(word)-1])
}

// isLatencyCPU reports whether a CPU as perf script -L writes it ends text: three columns without
// brackets, after a task's name and a thread ID.
func isLatencyCPU(text string) bool {
	rest, word := lastWord(text)
	name, id := lastWord(rest)
	from := len(text) - len(" 000")
	if from <= 0 || len(word) > 3 || !isDigits(word, decimalDigits) || text[from] != ' ' || !isID(id) {
		return false
	}
	// A single thread ID ends where the blank before the CPU is.
	return text[from-1] != ' ' || strings.Contains(id, "/") && strings.TrimSpace(name) != ""
}

// isID reports whether a word is a thread ID, maybe after that of the process. perf writes -1 for
// tasks that have none any more.
func isID(word string) bool {
	pid, tid, ok := strings.Cut(word, "/")
	return isInteger(pid) && (!ok || isInteger(tid))
}

// isInteger reports whether a word is a decimal number.
func isInteger(word string) bool {
	return isDigits(strings.TrimPrefix(word, "-"), decimalDigits)
}

// isMisc reports whether a word has the letters of +misc: the mode of the CPU, and what the record
// is about.
func isMisc(word string) bool {
	return word != "" && len(word) <= 5 && strings.Trim(word, "KUHGgMESp") == ""
}

// afterMisc reports whether a word is that of +misc, by the word before it, or by its width with the
// blanks after it.
func afterMisc(word, earlier string, width int) bool {
	return isMisc(word) && (isCPU(earlier) || isID(earlier) || earlier != "" && width == miscWidth)
}

// endsFields reports whether a thread ID, a CPU or +misc ends text, so that a number after it is a
// period.
func endsFields(text string) bool {
	rest, word := lastWord(text)
	_, earlier := lastWord(rest)
	return isID(word) || isCPU(word) || afterMisc(word, earlier, len(text)-len(rest)-1)
}

// after parses the fields after the time, which text begins with.
func (h *perfHead) after(text string) {
	if cookie, ok := strings.CutPrefix(text, "DEFERRED CALLCHAIN [cookie: "); ok {
		h.callers, _, _ = strings.Cut(cookie, "]")
		return
	}
	word, rest := firstWord(text)
	stop := len(text) - len(rest)
	switch {
	case isDigits(word, hexDigits) && (stop == ipWidth || stop == ipWidth+1) && !strings.HasSuffix(firstOf(rest), ":"):
		h.rest = text // an address, without an event
		return
	case h.setPeriod(word) && (rest == "" || stop == periodWidth || eventEnd(rest) > 0):
		text = rest
		if text != "" {
			text = text[1:] // the blank after the field
		}
	default:
		h.period, h.fraction = 1, 0
	}
	h.setEvent(text)
}

// Widths of fields: a period, the misc letters with the blanks after them, and a time without its
// colon.
const periodWidth, miscWidth, timeWidth = 10, 6, 12

// column returns where the field of a word in line[start:end] begins: its blanks on the left belong to
// it.
func column(line string, start, end, width int) int {
	if from := end - width; from >= 0 && from < start && strings.TrimLeft(line[from:start], " ") == "" {
		return from
	}
	return start
}

// firstOf returns the first word of text.
func firstOf(text string) string {
	word, _ := firstWord(text)
	return word
}

// setPeriod sets the period to a number, maybe with a fraction, and reports whether word is one.
func (h *perfHead) setPeriod(word string) bool {
	whole, part, ok := strings.Cut(word, ".")
	if !isDigits(whole, decimalDigits) || ok && !isDigits(part, decimalDigits) {
		return false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		n = 1
	} else if ok {
		h.fraction, _ = strconv.ParseFloat("0."+part, 64) // not above 1
	}
	h.period = n
	return true
}

// setEvent splits the event off text.
func (h *perfHead) setEvent(text string) {
	end := eventEnd(text)
	if end <= 0 || isTraceField(firstOf(text)) {
		h.rest = text
		return
	}
	h.event, h.rest = strings.TrimSpace(text[:end]), text[min(end+2, len(text)):]
}

// isTraceField reports whether a word is the first one that tracepoints and probes print, and so no
// event: "prev_comm=sh", "(ffffffff81366eda)".
func isTraceField(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && !strings.Contains(name, "/") || word != "" && word[0] == '(' && isDigits(strings.TrimSuffix(word[1:], ")"), hexDigits)
}

// eventEnd returns the index of the colon after the event at the beginning of text, or -1. The
// event may contain colons and blanks: "sched:sched_switch", "cpu/event=0x3c, umask=0/u".
func eventEnd(text string) int {
	for from := 0; ; {
		i := strings.IndexByte(text[from:], ':')
		if i < 0 {
			return -1
		}
		i += from
		if from = i + 1; from == len(text) || text[from] == ' ' || text[from] == '\t' {
			if strings.TrimSpace(text[:i]) == "" {
				return -1
			}
			return i
		}
	}
}

// parseUntimed parses a head without a time: one with a CPU after a thread ID, or with an event
// after a thread ID and maybe a period.
func parseUntimed(line string) (h perfHead, ok bool) {
	for end, tries := 0, 0; tries < maxTries; tries++ { // the task's name may have colons, too
		next := eventEnd(line[end:])
		if next < 0 {
			break
		}
		if end += next; end > 0 {
			if h, ok = untimedTo(line, end); ok {
				return h, true
			}
		}
		if end++; end >= len(line) {
			break
		}
	}
	h = perfHead{period: 1}
	if place := afterCPU(line); place > 0 { // without an event
		h.before(line[:place])
		h.after(line[place:])
		return h, true
	}
	return h, false
}

// maxTries is the maximum number of words of a line that are tried as the end of a field.
const maxTries = 16

// untimedTo parses a head without a time, whose event ends at the colon at line[end].
func untimedTo(line string, end int) (h perfHead, ok bool) {
	h.period = 1
	if place := afterCPU(line[:end]); place > 0 {
		h.before(line[:place])
		h.after(line[place:])
		return h, h.event != ""
	}
	start := eventStart(line[:end])
	h.event, h.rest = strings.TrimSpace(line[start:end]), line[min(end+2, len(line)):]
	text, number := cutDigits(line[:start])
	if hasPeriod := endsFields(text) && h.setPeriod(number); !hasPeriod {
		text = line[:start]
	}
	h.before(text)
	if !h.hasID {
		// Only a period, in its columns.
		h.task = profile.Task{}
		if text, number = cutDigits(line[:start]); text != "" || start != periodWidth+1 || !h.setPeriod(number) {
			return h, false
		}
	}
	// Other text has a number before a colon, too, but mostly no blank after one at the end of a line.
	_, inline := inlineFrame(h.rest)
	return h, inline && h.event != ":" || end+1 < len(line) && strings.TrimSpace(h.rest) == "" || grouped.MatchString(h.event) || addressColumn(h.rest)
}

// grouped matches events that no other text has before a colon: tracepoints and probes with their group,
// and events with modifiers.
var grouped = regexp.MustCompile(`^[A-Za-z_][^: ]*:[^: ]+(:[^: ]+)?$|/.*:\w+$`)

// afterCPU returns the place after the first CPU that follows a thread ID, and after +misc, or 0.
func afterCPU(text string) int {
	for from := 0; ; {
		i := strings.Index(text[from:], " [")
		if i < 0 {
			return 0
		}
		from += i + 1
		word := firstOf(text[from:])
		if _, id := lastWord(text[:from]); len(word) < len("[000]") || !isCPU(word) || !isID(id) {
			continue
		}
		end := min(from+len(word)+1, len(text))
		if isMisc(firstOf(text[end:])) && end+miscWidth < len(text) {
			end += miscWidth
		}
		return end
	}
}

// eventStart returns the place of the event at the end of text: its last word, or all words
// between the slashes of a PMU's event and the one with the PMU's name.
func eventStart(text string) int {
	text = strings.TrimRight(text, " \t")
	last := strings.LastIndexByte(text, '/')
	from := strings.LastIndexAny(text, " \t") + 1
	if last < from {
		return from
	}
	first := strings.IndexByte(text, '/')
	for first >= 0 && first < last && isID(firstOf(text[strings.LastIndexAny(text[:first], " \t")+1:])) { // PID/TID
		next := strings.IndexByte(text[first+1:], '/')
		if next < 0 {
			return from
		}
		first += 1 + next
	}
	return min(from, strings.LastIndexAny(text[:first], " \t")+1)
}

// cutDigits splits the last word off text if it may be a period. What is left has all blanks that
// do not belong to its field.
func cutDigits(text string) (before, number string) {
	trimmed := strings.TrimRight(text, " \t")
	start := strings.LastIndexAny(trimmed, " \t") + 1
	before, number = text[:column(trimmed, start, len(trimmed), periodWidth)], trimmed[start:]
	if len(number) < 3 && isLatencyCPU(trimmed) {
		return text, ""
	}
	if strings.HasSuffix(before, "  ") && len(before) == start && !isMisc(firstOf(before[strings.LastIndexAny(strings.TrimRight(before, " "), " \t")+1:])) {
		return text, "" // a thread ID, as it is not in the columns of a period
	}
	return before, number
}

// parseLooseHead parses any line as a head of the fields that it may have, and reports whether it
// shows an instruction, and so is one.
func parseLooseHead(line string) (h perfHead, one bool) {
	h.period = 1
	text := line
	if end := eventEnd(line); end > 0 && (strings.TrimSpace(line[end+1:]) == "" || addressColumn(line[min(end+2, len(line)):])) {
		h.rest = line[min(end+2, len(line)):]
		start := eventStart(line[:end])
		text, h.event = line[:start], strings.TrimSpace(line[start:end])
	} else if dataHead(line) {
		text, h.rest = "", line
	} else if at := dataColumn(line); at >= 0 {
		text, h.rest = line[:at], line[at:]
	} else if at := instructionColumn(line); at >= 0 {
		text, h.rest = line[:at], line[at:]
	}
	if before, number := cutDigits(text); endsFields(before) && h.setPeriod(number) {
		text = before
	}
	h.before(text)
	_, one = inlineFrame(h.rest)
	return h, one
}

// dataSource follows the number of -F data_src: what the memory access was, "|OP LOAD|LVL L1 hit".
const dataSource = " |OP "

// dataColumn returns the place of the first number in 16 columns in a line, or -1: that of -F addr,
// data_src or weight, which follow the other fields of a head. The instruction has a blank before its
// columns, but none that belongs to the field before it.
func dataColumn(line string) int {
	before := ""
	for end := 0; ; {
		start, stop := nextWord(line, end)
		if start == stop {
			return -1
		}
		word := line[start:stop]
		if isDigits(word, hexDigits) {
			switch {
			case strings.HasPrefix(line[stop:], dataSource):
				return column(line, start, stop, ipWidth)
			case end > 0 && isPadding(before, stop-end-ipWidth-1):
				return stop - ipWidth
			}
		}
		before, end = word, stop
	}
}

// isPadding reports whether n blanks may pad a field on the right. The thread ID after that of the
// process has 7 columns, with call chains 5.
func isPadding(word string, n int) bool {
	if _, tid, ok := strings.Cut(word, "/"); ok && isID(word) {
		return n == max(7-len(tid), 0) || n == max(5-len(tid), 0)
	}
	return n == 0 || isMisc(word) && n == miscWidth-1-len(word)
}

// dataHead reports whether a line begins with a number in 16 columns and a blank before them, and has no
// tab before it, which are the data of a sample, and not an instruction.
func dataHead(line string) bool {
	start, stop := nextWord(line, 0)
	return start > 0 && stop == ipWidth && strings.Trim(line[:start], " ") == "" && isDigits(line[start:stop], hexDigits) &&
		(stop == len(line) || line[stop] == ' ')
}

// addressColumn reports whether text begins with an address in its columns.
func addressColumn(text string) bool {
	word, rest := firstWord(text)
	stop := len(text) - len(rest)
	return isDigits(word, hexDigits) && (stop == ipWidth || stop == ipWidth+1)
}

// instructionColumn returns the place of the instruction's columns in a line, with the blank
// before them, or -1. A name and its file or offset follow the address after a blank. Of the fields
// before it, only a thread ID after that of the process and +misc may have several blanks after them.
func instructionColumn(line string) int {
	padded := false
	for end := 0; ; {
		start, stop := nextWord(line, end)
		if start == stop {
			return -1
		}
		word := line[start:stop]
		if width := stop - end; end > 0 && (width == ipWidth+2 || width > ipWidth+2 && padded) &&
			isDigits(word, hexDigits) && !strings.HasPrefix(line[stop:], "  ") && hasLocation(line[stop:]) {
			if f := location(line[stop:]); f.file != "" || f.offset > 0 || f.name != "" || firstOf(line[stop:]) == "[unknown]" {
				return stop - ipWidth - 1
			}
		}
		padded = isID(word) && strings.Contains(word, "/") || isMisc(word)
		end = stop
	}
}

// nextWord returns the place of the next word of text from an offset.
func nextWord(text string, from int) (start, stop int) {
	for start = from; start < len(text) && (text[start] == ' ' || text[start] == '\t'); start++ {
	}
	for stop = start; stop < len(text) && text[stop] != ' ' && text[stop] != '\t'; stop++ {
	}
	return start, stop
}

// inlineFrame returns the instruction that the rest of a head shows. Before it there may be a
// data address with a symbol and a file of its own, and other numbers: all take 16 columns, and
// only the instruction has a blank before its columns.
func inlineFrame(rest string) (f perfScriptFrame, ok bool) {
	bare, isBare, isAddress := "", false, false
	first := true
	for end := 0; ; {
		start, stop := nextWord(rest, end)
		if start == stop {
			break
		}
		word, after := rest[start:stop], rest[stop:]
		if len(word) <= ipWidth && isDigits(word, hexDigits) {
			switch width := stop - end; {
			case width > ipWidth && hasLocation(after):
				return inlineAt(word, after), true
			case width == ipWidth+1:
				bare, isBare = word, true
			case width == ipWidth && first:
				isAddress = true
			}
		}
		first, end = false, stop
	}
	if isBare {
		return inlineAt(bare, ""), true
	}
	if isAddress {
		return f, false
	}
	// Blanks may have been lost.
	text := strings.TrimLeft(rest, " \t")
	for text != "" {
		word, after := firstWord(text)
		switch {
		case isBranchFlag(word):
			text = strings.TrimLeft(after, " \t")
			continue
		case len(word) > ipWidth || !isDigits(word, hexDigits) || !hasLocation(after):
			return f, false
		}
		f = inlineAt(word, after)
		return f, f.file != "" || f.offset > 0 || len(word) > 5
	}
	return f, false
}

// isBranchFlag reports whether a word is one of those that -F flags shows: kinds of branches.
func isBranchFlag(word string) bool {
	switch word {
	case "call", "return", "jcc", "jmp", "int", "iret", "syscall", "sysret", "async", "hw", "tx", "abrt", "tr", "strt", "end", "vmentry", "vmexit", "br", "miss":
		return true
	}
	return word[0] == '(' && word[len(word)-1] == ')' && strings.Trim(word, "(xDt)") == ""
}

// hasLocation reports whether a symbol or a file follows an address, and not another number, or
// nothing.
func hasLocation(after string) bool {
	start, stop := nextWord(after, 0)
	word := after[start:stop]
	switch {
	case word == "", word[0] == '|', isPageSize(word), word == "=>":
		return false
	case isDigits(word, decimalDigits), stop >= ipWidth && isDigits(word, hexDigits):
		return false
	}
	return true
}

// inlineAt returns the instruction at an address.
func inlineAt(address, after string) perfScriptFrame {
	f := location(cutTrailing(after))
	f.address, _ = strconv.ParseUint(address, 16, 64) // at most 16 digits
	return f
}

// What may follow the instruction in its line, if the file is not shown.
var trailers = []string{"\t", " => ", " 0x"}

// cutTrailing cuts what follows the symbol and the file of an instruction: the target of a branch, the
// physical address and sizes of pages.
func cutTrailing(text string) string {
	for _, begin := range []string{" (/", " (["} {
		if i := strings.Index(text, begin); i >= 0 {
			return text[:closeParenthesis(text, i+1)]
		}
	}
	for _, t := range trailers {
		if i := strings.Index(text, t); i > 0 {
			text = text[:i]
		}
	}
	for end := 0; ; {
		start, stop := nextWord(text, end)
		if start == stop {
			return text
		}
		word := text[start:stop]
		if end > 0 && stop-end == ipWidth && isDigits(word, hexDigits) || isPageSize(word) {
			return text[:end]
		}
		end = stop
	}
}

// closeParenthesis returns the index after the parenthesis that closes the one at open, or the
// last one.
func closeParenthesis(text string, open int) int {
	depth := 0
	for i := open; i < len(text); i++ {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	if i := strings.LastIndexByte(text, ')'); i > open {
		return i + 1
	}
	return len(text)
}
