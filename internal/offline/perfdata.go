package offline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"fulgur/internal/capture/naming"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/perfdata"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/timeline"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
)

// readPerfData reads the call chains of perf.data and symbolizes them.
func readPerfData(ctx context.Context, f *ctxfile.File, finder *debugfile.Finder, withTimes bool, warn func(error)) (in *input, err error) {
	data, err := perfdata.Of(ctx, f)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.CloseParts()) }()
	var times *perfTimes
	var each func(perfdata.ChainSample) error
	if withTimes {
		if times, err = newPerfTimes(); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, times.recorder.Close())
			}
		}()
		each = times.add
	}
	tables := perfTables{ctx: ctx, finder: finder}
	chains, err := data.CallChains(ctx, perfdata.ChainOptions{Each: each, Code: tables.code})
	if err != nil {
		return nil, err
	}
	tables.warn(warn)
	for _, left := range chains.Damage {
		warn(left)
	}
	cut := truncated(chains.Profile)
	chains.Profile.Losses = chains.Profile.Losses.Plus(cut)
	warnLosses(f.Name(), cut, describe.NounOfProfile(chains.Profile), warn)
	r := naming.Resolver{Profile: chains.Profile, Finder: finder, Offsets: true, Kallsyms: kallsyms(chains, data, finder)}
	p, err := r.Resolve(ctx)
	r.Warn(warn)
	if err != nil {
		return nil, err
	}
	in = &input{profile: p}
	if times != nil {
		in.recorder = times.recorder
		in.line, err = times.timeline(p, &r)
	}
	return in, err
}

// truncated counts the truncated user stacks of p, whose first value is the number of
// samples.
func truncated(p *profile.Profile) (l profile.Losses) {
	for _, s := range p.Samples {
		if cause, ok := describe.OfEnd(s.End); ok {
			l[cause] += uint64(s.Values[0])
		}
	}
	return l
}

// maxTimedRows limits the processes, threads and names of a recording made from a file, which take
// a gigabyte.
const maxTimedRows = 1 << 22

// perfTimes makes a recording of the samples in perf.data.
type perfTimes struct {
	recorder    *timeline.Recorder
	rows        int // limit of the recorder's rows
	first, last int64
	weights     int64 // of the main event, their sum and number
	samples     int64
	sampled     profile.ValueType                          // the main event
	types       map[profile.ValueType]profile.MarkerTypeID // of the other events
}

func newPerfTimes() (*perfTimes, error) {
	// The start is known only at the end: samples are not sorted in the
	// file.
	recorder, err := timeline.NewRecorder(0)
	return &perfTimes{recorder: recorder, rows: maxTimedRows, first: math.MaxInt64, types: map[profile.ValueType]profile.MarkerTypeID{}}, err
}

// add records a sample: of the main event as time on the CPU, of the others as markers.
func (t *perfTimes) add(s perfdata.ChainSample) error {
	if t.recorder.Rows() > t.rows {
		return fmt.Errorf("more than %d processes, threads and names: choose a format without times, such as pprof", t.rows)
	}
	t.first, t.last = min(t.first, s.Time), max(t.last, s.Time)
	process := t.recorder.Process(s.PID, 0)
	thread := t.recorder.Thread(process, s.TID, 0)
	t.recorder.NameThread(thread, s.Time, s.Comm)
	if s.PID == s.TID {
		t.recorder.NameProcess(process, s.Time, s.Comm)
	}
	if !s.Main {
		typ, ok := t.types[s.Event]
		if !ok {
			typ = t.recorder.AddMarkerType(profile.MarkerType{Name: s.Event.Type, Event: s.Event.Type, Unit: s.Event.Unit})
			t.types[s.Event] = typ
		}
		return t.recorder.AddMarker(thread, profile.Marker{Time: s.Time, Type: typ, Stack: s.Stack, Weight: s.Amount})
	}
	t.weights += min(s.Weight, math.MaxInt64-t.weights)
	t.samples++
	t.sampled = s.Event
	return t.recorder.AddOnCPU(thread, profile.OnCPU{Time: s.Time, Stack: s.Stack, Weight: s.Weight, Amount: s.Amount})
}

// timeline returns the recording with the stacks that r has resolved into p's.
func (t *perfTimes) timeline(p *profile.Profile, r *naming.Resolver) (*profile.Timeline, error) {
	line, err := t.recorder.Timeline(p, t.last, r.Stack)
	if err != nil {
		return nil, err
	}
	line.Start, line.Interval, line.Sampled = t.first, t.weights/max(t.samples, 1), t.sampled
	line.Counters = nil // they start at the clock's 0
	line.Events = timeline.Sorted(line.Events)
	for _, thread := range line.Threads {
		if p := &line.Processes[thread.Process]; len(p.Names) == 0 { // the first thread was not recorded
			p.Names = thread.Names
		}
	}
	return line, nil
}

// maxKallsyms bounds the symbols of another kernel than the running one, in bytes. Those of a
// distribution's take about 10 MiB.
const maxKallsyms = 128 << 20

// kallsyms returns the path of the symbols of the kernel that c was recorded on, at the same addresses:
// the running one's, those that perf record --kcore has stored with the recording, or those of perf's
// cache. It returns "" if there are none.
func kallsyms(c *perfdata.CallChains, data *perfdata.Input, finder *debugfile.Finder) string {
	if id, err := finder.KernelBuildID(""); err == nil && c.KernelBuildID != "" && elffile.SameBuildID(c.KernelBuildID, id) && hasText(symbolize.Kallsyms, c) {
		return symbolize.Kallsyms
	}
	for _, name := range []string{data.Kallsyms(), finder.CachedKallsyms(c.KernelBuildID)} {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() <= maxKallsyms && hasText(name, c) {
			return name
		}
	}
	return ""
}

// hasText reports whether symbols place the kernel's code where c has it.
func hasText(name string, c *perfdata.CallChains) bool {
	text, err := symbolize.KernelText(name)
	return err == nil && text == c.KernelText
}
