package sampleprof

import (
	"bufio"
	"io"
	"strconv"
)

// WriteText writes p in the text format.
func (p *Profile) WriteText(w io.Writer) error {
	t := textWriter{w: bufio.NewWriterSize(w, 1<<16)}
	for _, name := range p.sorted() {
		f := p.Functions[name]
		t.line = append(t.line[:0], name...)
		t.number(':', f.Total)
		t.number(':', f.Head)
		t.end()
		t.body(f, 1)
	}
	return t.w.Flush() // bufio keeps the first error
}

type textWriter struct {
	w    *bufio.Writer
	line []byte
}

func (t *textWriter) number(before byte, n uint64) {
	t.line = strconv.AppendUint(append(t.line, before), n, 10)
}

func (t *textWriter) end() {
	t.line = append(t.line, '\n')
	t.w.Write(t.line)
}

// location writes the start of a line: the location.
func (t *textWriter) location(l Location, indent int) {
	t.line = t.line[:0]
	for range indent {
		t.line = append(t.line, ' ')
	}
	t.line = strconv.AppendUint(t.line, uint64(l.Line), 10)
	if l.Discriminator != 0 {
		t.number('.', uint64(l.Discriminator))
	}
	t.line = append(t.line, ": "...)
}

// body writes the samples of f, whose depth is bounded.
func (t *textWriter) body(f *Function, indent int) {
	for _, l := range f.locations() {
		r := f.Body[l]
		t.location(l, indent)
		t.line = strconv.AppendUint(t.line, r.Samples, 10)
		for _, target := range r.targets() {
			t.line = append(append(t.line, ' '), target...)
			t.number(':', r.Targets[target])
		}
		t.end()
	}
	for _, c := range f.calls() {
		callee := f.Inlined[c]
		t.location(c.Location, indent)
		t.line = append(t.line, c.Callee...)
		t.number(':', callee.Total)
		t.end()
		t.body(callee, indent+1)
	}
}
