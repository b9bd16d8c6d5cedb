package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// counted holds the counts of a tool's output.
type counted struct {
	samples   uint64
	stackless uint64 // samples without a stack
}

// sumFunc counts the samples in an output.
type sumFunc func(io.Reader) (counted, error)

// lostMarks are the notes that bcc and fulgur show in place of a lost stack.
var lostMarks = [][]byte{[]byte("[Missed "), []byte("[stack lost]")}

// sumFolded counts the samples of folded stacks: a line is a stack, a space
// and a count.
func sumFolded(r io.Reader) (counted, error) {
	var c counted
	lines := newScanner(r)
	for lines.Scan() {
		line := lines.Bytes()
		n, err := strconv.ParseUint(string(line[bytes.LastIndexByte(line, ' ')+1:]), 10, 64)
		if err != nil {
			return c, fmt.Errorf("folded line %q does not end in a count", line)
		}
		c.samples += n
		if slices.ContainsFunc(lostMarks, func(mark []byte) bool { return bytes.Contains(line, mark) }) {
			c.stackless += n
		}
	}
	return c, lines.Err()
}

// bpftraceCount is the end of an element of a bpftrace map, its value.
var bpftraceCount = regexp.MustCompile(`\]: (\d+)$`)

// sumBPFTrace counts the samples in a map of stacks as bpftrace prints it.
func sumBPFTrace(r io.Reader) (counted, error) {
	var c counted
	lines := newScanner(r)
	for lines.Scan() {
		if m := bpftraceCount.FindSubmatch(lines.Bytes()); m != nil {
			n, err := strconv.ParseUint(string(m[1]), 10, 64)
			if err != nil {
				return c, err
			}
			c.samples += n
		}
	}
	return c, lines.Err()
}

// lostLine matches lost samples in fulgur's summary.
var lostLine = regexp.MustCompile(`(?m)^\s*(\d+) samples? lost\b`)

// reportedLost returns the number of lost samples that a tool reports on standard error.
func reportedLost(stderr string) uint64 {
	m := lostLine.FindStringSubmatch(stderr)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseUint(m[1], 10, 64) // the pattern matches digits only
	return n
}

// perfStacks holds the stacks of a perf.data file.
type perfStacks struct {
	counts        map[string]uint64 // by folded stack
	samples, lost uint64
	first, last   time.Duration // times of samples, including idle ones
}

// foldPerf reads the output of perf script -F comm,tid,time,ip,sym --ns
// --show-lost-events: for each sample a line with command, thread and time, then a line
// for each frame, beginning with the leaf, then an empty line. It does not count samples
// of idle CPUs (thread 0).
func foldPerf(r io.Reader) (perfStacks, error) {
	s := perfStacks{counts: map[string]uint64{}}
	lines := newScanner(r)
	var frames []string
	for lines.Scan() {
		header := lines.Text()
		if strings.TrimSpace(header) == "" {
			continue
		}
		if _, n, ok := strings.Cut(header, "PERF_RECORD_LOST lost "); ok {
			lost, err := strconv.ParseUint(strings.TrimSpace(n), 10, 64)
			if err != nil {
				return s, fmt.Errorf("perf script line %q: %w", header, err)
			}
			s.lost += lost
			continue
		}
		comm, tid, at, err := parsePerfHeader(header)
		if err != nil {
			return s, err
		}
		frames = frames[:0]
		for lines.Scan() && len(lines.Bytes()) > 0 {
			_, symbol, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
			frames = append(frames, symbol)
		}
		if s.first == 0 || at < s.first {
			s.first = at
		}
		s.last = max(s.last, at)
		if tid == 0 {
			continue
		}
		slices.Reverse(frames)
		s.counts[strings.Join(append([]string{comm}, frames...), ";")]++
		s.samples++
	}
	return s, lines.Err()
}

// parsePerfHeader reads a line "command  tid  seconds.nanoseconds: ". The
// command may contain spaces.
func parsePerfHeader(line string) (comm string, tid int, at time.Duration, err error) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return "", 0, 0, fmt.Errorf("perf script line %q is not a command, a thread and a time", line)
	}
	n := len(fields)
	tid, tidErr := strconv.Atoi(fields[n-2])
	clock, isTime := strings.CutSuffix(fields[n-1], ":")
	at, timeErr := time.ParseDuration(clock + "s")
	if err := errors.Join(tidErr, timeErr); err != nil || !isTime {
		return "", 0, 0, fmt.Errorf("perf script line %q is not a command, a thread and a time", line)
	}
	return strings.Join(fields[:n-2], " "), tid, at, nil
}

// maxLine has room for a stack of 2 × 127 frames of C++ templates.
const maxLine = 16 << 20

func newScanner(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	return s
}
