package bolt

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strings"
)

// WriteTraces writes a profile for LLVM 22 and newer: a T line for each trace with a
// fall-through. A B line follows the T lines of a branch. It counts the traces without a
// fall-through, and the mispredictions, which a T line of LLVM 22 cannot hold. traces must be
// sorted as by [Collector.Each].
func WriteTraces(w io.Writer, traces iter.Seq2[Trace, error]) error {
	out := newLineWriter(w)
	for branch, err := range branches(traces, func(t Trace) error {
		out.write(Line{Kind: KindTrace, Addr: [3]uint64{t.From, t.To, t.End}, Count: t.Count})
		return nil
	}) {
		if err != nil {
			return err
		}
		if branch.alone > 0 || branch.Mispredicted > 0 {
			out.write(Line{Kind: KindBranch, Addr: [3]uint64{branch.From, branch.To}, Count: branch.alone, Mispredicted: branch.Mispredicted})
		}
	}
	return out.flush()
}

// WriteBranches writes a profile for all versions of LLVM since 16. It has B lines for the
// branches. A fall-through has an F line if the preceding branch is in the same function,
// otherwise an f line. traces must be sorted as by [Collector.Each]. memory bounds the table
// of fall-throughs, as in [Options].
func WriteBranches(w io.Writer, b *Binary, functions *Functions, traces iter.Seq2[Trace, error], memory int) error {
	if memory <= 0 {
		memory = DefaultMemory
	}
	falls := newCounter(memory)
	defer falls.close()
	out := newLineWriter(w)
	for branch, err := range branches(traces, func(t Trace) error {
		// Order by address, then kind.
		k := key{binary: 2, from: b.offset(t.To), to: b.offset(t.End), end: uint32(KindEnteredFallThrough)}
		if functions.Same(t.From, t.To) {
			k.end = uint32(KindFallThrough)
		}
		return falls.addMany(k, t.Count)
	}) {
		if err != nil {
			return err
		}
		out.write(Line{Kind: KindBranch, Addr: [3]uint64{branch.From, branch.To}, Count: branch.Count, Mispredicted: branch.Mispredicted})
	}
	var last Line
	for r, err := range falls.records() {
		if err != nil {
			return err
		}
		l := Line{Kind: Kind(r.end), Addr: [3]uint64{b.address(r.from), b.address(r.to)}, Count: uint64(r.count)}
		if last.same(l) {
			last.Count += l.Count
			continue
		}
		out.write(last)
		last = l
	}
	out.write(last)
	return out.flush()
}

// WriteBasic writes the samples of [Collector.AddAddress] for `perf2bolt --basic-events`
// of LLVM 22 and newer. event is the name of the sampled event.
func WriteBasic(w io.Writer, event string, traces iter.Seq2[Trace, error]) error {
	if event == "" || strings.ContainsAny(event, " \t\r\n") {
		return fmt.Errorf("event name %q: must be one word", event)
	}
	out := newLineWriter(w)
	out.write(Line{Kind: KindEvent, Event: event})
	for t, err := range traces {
		if err != nil {
			return err
		}
		out.write(Line{Kind: KindSample, Addr: [3]uint64{t.From}, Count: t.Count})
	}
	return out.flush()
}

// branch is the sum of all traces of a branch. alone is the number of traces without a
// fall-through.
type branch struct {
	Trace
	alone uint64
}

// branches yields the branches of sorted traces. Before each branch, it calls withFall
// for the branch's traces that have a fall-through.
func branches(traces iter.Seq2[Trace, error], withFall func(Trace) error) iter.Seq2[branch, error] {
	return func(yield func(branch, error) bool) {
		var last branch
		for t, err := range traces {
			if err != nil {
				yield(branch{}, err)
				return
			}
			if t.From != last.From || t.To != last.To {
				if last.Count > 0 && !yield(last, nil) {
					return
				}
				last = branch{Trace: Trace{From: t.From, To: t.To}}
			}
			last.Count += t.Count
			last.Mispredicted += t.Mispredicted
			if t.End == 0 {
				last.alone += t.Count
			} else if err := withFall(t); err != nil {
				yield(branch{}, err)
				return
			}
		}
		if last.Count > 0 {
			yield(last, nil)
		}
	}
}

// lineWriter writes lines. It keeps the first error for flush.
type lineWriter struct {
	w   *bufio.Writer
	buf []byte
	err error
}

func newLineWriter(w io.Writer) *lineWriter { return &lineWriter{w: bufio.NewWriterSize(w, 1<<16)} }

// write writes l unless it is the zero Line.
func (w *lineWriter) write(l Line) {
	if l.Kind != 0 {
		w.buf = l.append(w.buf[:0])
		_, w.err = w.w.Write(w.buf)
	}
}

func (w *lineWriter) flush() error { return w.w.Flush() }
