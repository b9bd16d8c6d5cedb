package sampleprof

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// readText reads the text format. A line without indentation begins a function. A line
// indented by n spaces belongs to the n-th nested call.
func readText(b *builder, data []byte) error {
	r := textReader{builder: b}
	number := 0
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		number++
		text := strings.TrimRight(string(line), " \t\r")
		if text == "" || text[0] == '#' {
			continue
		}
		if err := r.line(text); err != nil {
			return atPlace(fmt.Sprintf("line %d", number), err)
		}
	}
	if r.counts == 0 {
		return &SyntaxError{At: "line 1", Problem: "no functions: not a sample profile"}
	}
	return nil
}

type textReader struct {
	*builder
	stack []*Function // the nested calls of the current line, outermost first
}

// errOtherKind is the error for a profile with calling contexts or pseudo-probes.
var errOtherKind = errors.New("a profile by calling contexts or pseudo-probes, which only llvm-profdata can handle")

func (r *textReader) line(text string) error {
	if err := r.reserve(1); err != nil {
		return err
	}
	body := strings.TrimLeft(text, " ")
	depth := len(text) - len(body)
	switch {
	case body[0] == '!', depth == 0 && body[0] == '[':
		return errOtherKind
	case depth == 0:
		return r.function(body)
	case depth > len(r.stack):
		return errors.New("indented too far")
	}
	r.stack = r.stack[:depth]
	return r.location(r.stack[depth-1], body)
}

// function reads a line NAME:TOTAL:HEAD.
func (r *textReader) function(text string) error {
	rest, head, err := cutCount(text)
	if err != nil {
		return err
	}
	name, total, err := cutName(rest)
	if err != nil {
		return err
	}
	f := r.profile.Function(name)
	f.Total, f.Head = Sum(f.Total, total), Sum(f.Head, head)
	r.stack = append(r.stack[:0], f)
	return nil
}

// location reads a line LOCATION: SAMPLES [TARGET:COUNT...] or LOCATION: CALLEE:TOTAL.
func (r *textReader) location(f *Function, text string) error {
	before, rest, ok := strings.Cut(text, ":")
	if !ok {
		return fmt.Errorf("expected LINE: SAMPLES, found %.40q", text)
	}
	at, err := parseLocation(before)
	if err != nil {
		return err
	}
	first, rest := cutWord(rest)
	if first == "" {
		return errors.New("expected samples or a call")
	}
	if first[0] >= '0' && first[0] <= '9' {
		return r.samples(f.At(at), first, rest)
	}
	name, total, err := cutName(first)
	second, _ := cutWord(rest)
	switch {
	case err != nil:
		return err
	case second != "":
		return fmt.Errorf("expected the end of the line, found %.40q", second)
	case len(r.stack) == maxDepth:
		return fmt.Errorf("more than %d nested calls", maxDepth)
	}
	callee := f.Call(Call{at, name})
	callee.Total = Sum(callee.Total, total)
	r.stack = append(r.stack, callee)
	return nil
}

// samples reads the samples at a location, and the calls there.
func (r *textReader) samples(record *Record, count, targets string) error {
	n, err := parseCount(count)
	if err != nil {
		return err
	}
	record.Samples = Sum(record.Samples, n)
	for target, rest := cutWord(targets); target != ""; target, rest = cutWord(rest) {
		if err := r.reserve(1); err != nil {
			return err
		}
		name, count, err := cutName(target)
		if err != nil {
			return err
		}
		record.AddTarget(name, count)
	}
	return nil
}

// space lists the characters that separate words. Names may contain other Unicode white
// space.
const space = " \t\r\v\f"

// cutWord splits off the first word. Splitting a whole line into words could need much
// memory.
func cutWord(text string) (word, rest string) {
	text = strings.TrimLeft(text, space)
	if i := strings.IndexAny(text, space); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

// cutName splits NAME:COUNT.
func cutName(text string) (name string, count uint64, err error) {
	name, count, err = cutCount(text)
	if err == nil && !ValidName(name) {
		err = fmt.Errorf("expected the name of a function, found %.40q", name)
	}
	return strings.Clone(name), count, err
}

// cutCount splits off the count after the last colon.
func cutCount(text string) (rest string, count uint64, err error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", 0, fmt.Errorf("expected a colon in %.40q", text)
	}
	count, err = parseCount(text[i+1:])
	return text[:i], count, err
}

func parseCount(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("expected a count, found %.40q", text)
	}
	return n, nil
}

// parseLocation parses LINE or LINE.DISCRIMINATOR.
func parseLocation(text string) (Location, error) {
	line, discriminator, found := strings.Cut(text, ".")
	n, err := strconv.ParseUint(line, 10, 16)
	d := uint64(0)
	if found && err == nil {
		d, err = strconv.ParseUint(discriminator, 10, 32)
	}
	if err != nil {
		return Location{}, fmt.Errorf("expected LINE or LINE.DISCRIMINATOR, found %.40q", text)
	}
	return Location{uint32(n), uint32(d)}, nil
}
