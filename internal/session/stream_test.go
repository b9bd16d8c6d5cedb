package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/samples"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/output"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// newTestStreaming returns a stream to w that has a store's stacks.
func newTestStreaming(t testing.TB, store *stacks.Store, w io.Writer) *streaming {
	t.Helper()
	o := &Options{Stderr: io.Discard}
	s := newStreaming(&run{options: o, finder: debugfiletest.NewFinder(t), store: store}, outputTo(uncommitted{w}), samples.WriteText)
	s.sinceBoot = time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	t.Cleanup(func() {
		if err := s.known.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// outputTo returns an open output.
func outputTo(out output.Output) *outputFile {
	return &outputFile{Output: out, giveUp: func() {}}
}

// uncommitted is an output without a commit step.
type uncommitted struct{ io.Writer }

func (uncommitted) Commit() error { return nil }
func (uncommitted) Abort() error  { return nil }

// counted is an output that counts commits.
type counted struct {
	uncommitted
	commits int
}

func (c *counted) Commit() error {
	c.commits++
	return nil
}

// Output written before an error is kept: close commits it.
func TestStreamCommits(t *testing.T) {
	s := newTestStreaming(t, stackstest.Own(t), io.Discard)
	out := &counted{uncommitted: uncommitted{io.Discard}}
	s.out, s.run.tracker.Sideband = outputTo(out), new(process.Sideband)
	if err := s.run.close(); err != nil || out.commits != 1 {
		t.Errorf("got %d commits, error %v; want 1", out.commits, err)
	}
}

// full is an output without room.
type full struct{ uncommitted }

var errFull = errors.New("no room")

func (full) Write([]byte) (int, error) { return 0, errFull }
func (full) Commit() error             { return errFull }

// The error of an output is reported once.
func TestStreamFull(t *testing.T) {
	s := newTestStreaming(t, stackstest.Own(t), io.Discard)
	s.out, s.run.tracker.Sideband = outputTo(full{}), new(process.Sideband)
	if err := s.handleEvent(0, event(1)); err != nil {
		t.Fatal(err)
	}
	s.put()
	s.run.queue.end()
	s.run.queue.write(t.Context())
	if err := s.run.queue.failed(); !errors.Is(err, errFull) {
		t.Errorf("got error %v, want %v", err, errFull)
	}
	if err := s.run.close(); err != nil {
		t.Errorf("got another error %v", err)
	}
}

// event returns the record of a sample.
func event(id uint64) []byte {
	e := oncpu.Event{
		Type: uint32(bpf.RecordTimeline), Cpu: 3, Time: uint64(90 * time.Second),
		Id: id, Weight: 10, Pid: 7, Tid: 8,
	}
	record, err := binary.Append(nil, binary.NativeEndian, &e)
	if err != nil {
		panic(err)
	}
	return record
}

func TestStreamWrites(t *testing.T) {
	var out bytes.Buffer
	s := newTestStreaming(t, stackstest.Own(t), &out)
	for _, id := range []uint64{1, 99, 1} {
		if err := s.handleEvent(0, event(id)); err != nil {
			t.Fatal(err)
		}
	}
	s.put()
	s.put() // an empty batch
	s.run.queue.end()
	s.run.queue.write(t.Context())
	got := out.String()
	for line, want := range map[string]int{
		"COMM: test (pid=7, tid=8) @ CPU 3, 03:01:30.000000\n":      2,
		"COMM: [unknown] (pid=7, tid=8) @ CPU 3, 03:01:30.000000\n": 1,
		"[stack lost]": 1,
		"fulgur/internal/capture/stacks/stackstest.NewStore+0": 4, // two frames in each sample
		"traces.go:": 4,
	} {
		if n := strings.Count(got, line); n != want {
			t.Errorf("got %d times %q, want %d, in:\n%s", n, line, want, got)
		}
	}
	if lost := s.written.lost[profile.LossTraces]; s.written.samples != 3 || lost != 1 || s.dropped != 0 {
		t.Errorf("got %d written, %d lost, %d dropped; want 3, 1, 0", s.written.samples, lost, s.dropped)
	}
	if err := s.handleEvent(0, event(1)[:20]); err == nil {
		t.Error("got no error for half a record")
	}
}

// The closing report of a stream has the same losses as a profile of the same samples: truncated
// stacks, and code without names, among it functions of language runtimes.
func TestStreamLosses(t *testing.T) {
	python := []uint64{1<<bpf.FrameRuntimeShift | uint64(bpf.RuntimePython)<<bpf.FrameKindShift | 0x5000, bpf.FrameEntered}
	table := process.NewTable(process.Options{})
	t.Cleanup(func() { table.Close() })
	store := stackstest.NewStore(t, stackstest.Layout{File: &process.File{Path: "app"}},
		stackstest.Trace{ID: 1, PID: 7, Comm: "test", User: append(python, stackstest.VoidAt), End: stackstest.Cut},
		stackstest.Trace{ID: 2, PID: 7, Comm: "test", User: []uint64{stackstest.JitAt}, End: stackstest.Faulted},
		stackstest.Trace{ID: 3, PID: 7, Comm: "test", User: []uint64{stackstest.JitAt, stackstest.VoidAt + 8}, End: stackstest.Ended},
		stackstest.Trace{ID: 4, PID: 7, Comm: "test", User: []uint64{stackstest.FileAt}, End: stackstest.Ended},
	)
	*store.Unkept = 5
	taken := map[uint64]uint64{1: 1, 2: 2, 3: 4, 4: 16, 99: 8} // by stack; 99 is lost
	var report strings.Builder
	s := newTestStreaming(t, store, io.Discard)
	s.run.options.Verbose = true
	s.run.options.Stderr, s.run.subject, s.run.unkept, s.run.tracker.Processes = &report, clock(t), store.Unkept, table
	counts := map[stacks.Key]stacks.Values{}
	for id, n := range taken {
		counts[stacks.Key{ID: id}] = stacks.Values{n}
		for range n {
			if err := s.handleEvent(0, event(id)); err != nil {
				t.Fatal(err)
			}
		}
		s.put() // each batch has a part of the samples
	}
	s.run.queue.end()
	s.run.queue.write(t.Context())
	if err := s.conclude(); err != nil {
		t.Fatal(err)
	}

	names := naming.New(store, debugfiletest.NewFinder(t), symbolize.Options{})
	names.Symbolize(t.Context())
	store.Count(counts)
	p, _ := buildProfile(clock(t), store, counts, names, profile.Meta{}, profile.Losses{}, nil, nil)
	want := p.Losses
	for _, cause := range []profile.Loss{profile.LossTruncatedUser, profile.LossBrokenGenerated, profile.LossUnresolved, profile.LossUnresolvedGenerated, profile.LossTraces} {
		if want[cause] == 0 {
			t.Errorf("the profile has no loss %q: %+v", cause, want)
		}
	}
	want[profile.LossUnresolvedFrames] = 0 // batches share functions, so there is no sum
	if s.written.lost != want {
		t.Errorf("got losses %+v, want the profile's: %+v", s.written.lost, want)
	}
	for _, line := range append(strings.Split(text.Losses(want, s.run.noun(), s.written.samples), "\n"), unkeptLines(5)...) {
		if !strings.Contains(report.String(), line) {
			t.Errorf("got a report without %q:\n%s", line, report.String())
		}
	}
}

// When the writer is slow, samples are dropped and counted, and the output marks the gap.
func TestStreamDrops(t *testing.T) {
	var out bytes.Buffer
	s := newTestStreaming(t, stackstest.Own(t), &out)
	poll := func(n int) {
		t.Helper()
		for range n {
			if err := s.handleEvent(0, event(1)); err != nil {
				t.Fatal(err)
			}
		}
		s.put()
	}
	s.run.queue.waiting.Store(maxWaiting - 5)
	poll(3)
	poll(3) // exceeds the limit
	poll(4) // still above it
	s.run.queue.waiting.Store(0)
	poll(2)
	s.run.queue.end()
	s.run.queue.write(t.Context())
	if s.dropped != 7 || s.written.samples != 5 {
		t.Errorf("got %d dropped and %d written, want 7 and 5", s.dropped, s.written.samples)
	}
	before, after, ok := strings.Cut(out.String(), "[7 samples dropped")
	if n, m := strings.Count(before, "COMM"), strings.Count(after, "COMM"); !ok || n != 3 || m != 2 {
		t.Errorf("got %d samples before the gap and %d after it, want 3 and 2:\n%s", n, m, out.String())
	}
}

// A poll with many samples loses none if no samples are waiting.
func TestStreamLargePoll(t *testing.T) {
	s := newTestStreaming(t, stackstest.Own(t), io.Discard)
	for range maxWaiting + 1 {
		if err := s.handleEvent(0, event(1)); err != nil {
			t.Fatal(err)
		}
	}
	s.put()
	s.run.queue.end()
	s.run.queue.write(t.Context())
	if s.dropped != 0 || s.written.samples != maxWaiting+1 {
		t.Errorf("got %d dropped and %d written, want 0 and all", s.dropped, s.written.samples)
	}
}

// An error of the output ends the stream without blocking.
func TestStreamFails(t *testing.T) {
	s := newTestStreaming(t, stackstest.Own(t), io.Discard)
	broken := errors.New("broken")
	s.encode = func(io.Writer, samples.Batch) error { return broken }
	for range 10 {
		if err := s.handleEvent(0, event(1)); err != nil {
			t.Fatal(err)
		}
		s.put()
	}
	s.run.queue.end()
	s.run.queue.write(t.Context())
	if err := s.run.queue.failed(); !errors.Is(err, broken) || s.written.samples != 0 {
		t.Errorf("got error %v, %d written; want the output's error, 0", err, s.written.samples)
	}
}

// BenchmarkStream names and writes samples of known stacks of 3 frames, in batches of
// 100, like at 1000 samples per second.
func BenchmarkStream(b *testing.B) {
	s := newTestStreaming(b, stackstest.Own(b), io.Discard)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run.queue.write(context.Background())
	}()
	for b.Loop() {
		for range 100 {
			if err := s.handleEvent(0, event(1)); err != nil {
				b.Fatal(err)
			}
		}
		for s.run.queue.waiting.Load() > maxWaiting/2 {
			time.Sleep(time.Microsecond)
		}
		s.put()
	}
	s.run.queue.end()
	<-done
	b.ReportMetric(float64(100*b.N)/b.Elapsed().Seconds(), "samples/s")
	if s.dropped > 0 {
		b.Errorf("got %d samples dropped, want 0", s.dropped)
	}
}
