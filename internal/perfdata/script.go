package perfdata

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/perfevent"
)

// maxScriptLine is the maximum length of a line, in bytes. 64 branches take about 4000.
const maxScriptLine = 1 << 20

// pidColumns is the maximum width of process IDs in perf script. Addresses are
// right-aligned in 16 columns, after a space or tab.
const pidColumns = 12

// collectScript reads the output of `perf script -F pid,ip,brstack --show-mmap-events`
// and adds its samples to c. It skips call chains between address and branches. With
// --show-task-events, it follows forks and execs. Without process IDs (-F ip,brstack),
// all samples belong to the only process that mapped a binary. name is used in errors.
func collectScript(r io.Reader, name string, c *bolt.Collector, opts Options) (Stats, error) {
	s := &script{
		lines:     bufio.NewReaderSize(r, maxScriptLine),
		name:      name,
		procs:     newProcesses(opts.Find),
		opts:      opts,
		collector: c,
	}
	err := s.run()
	return s.stats, err
}

// script is a text that is being read.
type script struct {
	lines     *bufio.Reader
	name      string
	number    int   // line number
	offset    int64 // start of the line
	procs     *processes
	opts      Options
	collector *bolt.Collector
	stats     Stats

	sample scriptSample
	stack  []bolt.Entry
}

// scriptSample is a partially read sample.
type scriptSample struct {
	begun, done bool // done: its branches have been counted
	pid         int32
	hasPID      bool
	ip          uint64
}

func (s *script) run() error {
	for {
		line, err := s.lines.ReadSlice('\n')
		s.number++
		if errors.Is(err, bufio.ErrBufferFull) {
			return s.errorf("line of more than %d bytes", maxScriptLine)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := s.line(strings.TrimRight(string(line), "\r\n")); err != nil {
			return err
		}
		s.offset += int64(len(line))
		if err != nil {
			return s.finishSample()
		}
	}
}

func (s *script) errorf(format string, args ...any) error {
	return &bolt.SyntaxError{File: s.name, Line: s.number, Offset: s.offset, Problem: fmt.Sprintf(format, args...)}
}

// line processes a line: an event, part of a sample, or the empty line after a sample.
// Other lines are perf's comments, and messages of scripts that ran it.
func (s *script) line(text string) error {
	if i := strings.Index(text, "PERF_RECORD_"); i >= 0 {
		if err := s.finishSample(); err != nil {
			return err
		}
		if err := s.event(text[:i], text[i:]); err != nil {
			return s.errorf("%v", err)
		}
		return nil
	}
	first, _ := word(text)
	if first == "" {
		return s.finishSample()
	}
	if _, isNumber := hexNumber(first); isNumber || isBranch(first) {
		return s.samplePart(text)
	}
	return nil
}

// isBranch distinguishes branches from numbers, and from the symbol and file names after
// addresses.
func isBranch(word string) bool { return strings.HasPrefix(word, "0x") && strings.Contains(word, "/") }

// word splits the first word off text.
func word(text string) (first, rest string) {
	text = strings.TrimLeft(text, " \t")
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

func hexNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	return n, err == nil
}

// samplePart processes a line of a sample. A process ID, which is optional, begins a
// sample; addresses follow, and branches, which end it.
func (s *script) samplePart(text string) error {
	first, rest := word(text)
	pid, err := strconv.ParseInt(first, 10, 32)
	hasPID := err == nil && len(text)-len(rest) <= pidColumns
	if hasPID || s.sample.done {
		if err := s.finishSample(); err != nil {
			return err
		}
	}
	s.sample.begun = true
	if hasPID {
		s.sample.pid, s.sample.hasPID = int32(pid), true
		text = rest
	}
	for {
		first, rest := word(text)
		if first == "" {
			return nil
		}
		if isBranch(first) {
			return s.branches(text)
		}
		if ip, ok := hexNumber(first); ok && s.sample.ip == 0 {
			s.sample.ip = ip
		}
		text = rest
	}
}

// finishSample counts a sample without branches, and prepares for the next.
func (s *script) finishSample() error {
	last := s.sample
	s.sample = scriptSample{}
	if !last.begun || last.done {
		return nil
	}
	layout, err := s.layout(last)
	switch {
	case err != nil || layout.Len() == 0:
		return err
	case s.opts.Addresses:
		return s.collector.AddAddress(layout, last.ip, 1)
	}
	s.stats.NoStack++
	return nil
}

// layout returns the layout of the sample's process, which is empty if it maps no binary.
func (s *script) layout(of scriptSample) (bolt.Layout, error) {
	s.stats.Samples++
	layout := s.opts.Default
	switch pid, one := s.procs.only(); {
	case s.procs.kernel.Len() > 0:
		layout = s.procs.kernel
	case of.hasPID:
		layout = s.procs.layout(of.pid, uint64(s.number))
	case one:
		layout = s.procs.layout(pid, uint64(s.number))
	case len(s.procs.byPID) > 0:
		return layout, s.errorf("samples without process numbers, though several processes have mapped the binaries: add pid to perf script's -F")
	}
	if layout.Len() == 0 {
		s.stats.Ignored++
	}
	return layout, nil
}

// branches parses the branches of the sample, newest first, up to the end of the line.
func (s *script) branches(text string) error {
	if s.opts.Addresses {
		return nil
	}
	s.sample.done = true
	s.stack = s.stack[:0]
	for {
		first, rest := word(text)
		if first == "" {
			break
		}
		e, ok := parseBranch(first)
		if !ok {
			return s.errorf("expected a branch as perf script -F brstack writes it, found %.60q", first)
		}
		if len(s.stack) == perfevent.MaxBranches {
			return s.errorf("sample with more branches than any hardware records")
		}
		s.stack = append(s.stack, e)
		text = rest
	}
	layout, err := s.layout(s.sample)
	if err != nil || layout.Len() == 0 {
		return err
	}
	return s.collector.Add(layout, s.stack)
}

// parseBranch parses FROM/TO/PREDICTED/IN_TX/ABORT and, from newer versions of perf,
// /CYCLES/TYPE/SPEC.
func parseBranch(text string) (e bolt.Entry, ok bool) {
	var parts [8]string
	n := 0
	for part := range strings.SplitSeq(text, "/") {
		if n == len(parts) {
			break
		}
		parts[n] = part
		n++
	}
	var okFrom, okTo bool
	e.From, okFrom = hexNumber(parts[0])
	e.To, okTo = hexNumber(parts[1])
	if !okFrom || !okTo || n < 5 {
		return e, false
	}
	switch parts[2] {
	case "M", "MN":
		e.Flags |= bolt.FlagMispredicted
	case "P", "PN":
		e.Flags |= bolt.FlagPredicted
	case "-", "N":
	default:
		return e, false
	}
	if parts[4] == "A" {
		e.Flags |= bolt.FlagAbort
	}
	if parts[7] == "SPEC_WRONG_PATH" {
		e.Flags |= bolt.FlagWrongPath
	}
	return e, true
}
