package firefox

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"fulgur/internal/profile"
)

// Types of weights.
const (
	weightSamples = "samples"
	weightTime    = "tracing-ms"
	weightBytes   = "bytes"
)

// weightOf returns the type of weights in a unit.
func weightOf(unit string) string {
	switch unit {
	case "nanoseconds":
		return weightTime
	case "bytes":
		return weightBytes
	}
	return weightSamples
}

// track is a thread of the profile, real or pseudo.
type track struct {
	name, processName string
	pid               string
	tid               any // number or string, unique in the profile
	main              bool
	pseudo            bool // a pseudo-thread, initially hidden
	// The lifetimes of thread and process, in nanoseconds since the start of the profile.
	// An unknown end is negative.
	start, end               int64
	processStart, processEnd int64

	points iter.Seq2[point, error]
	// row returns the row of a point's stack. It is called once for each point rather
	// than for every column.
	row        func(point) int32
	weightType string
	cpu        bool // points include CPU usage
	value      int  // index of the value of the weights; -1 if it is a part of a recording
	markers    iter.Seq2[marker, error]

	activity, weight int64 // CPU usage and total weight, known after writing
}

// newEmptyTrack returns a thread for a profile without threads, which the front end would
// not load.
func newEmptyTrack() *track {
	return &track{
		name: "no samples", processName: "no samples", pid: "0", tid: 0, main: true, end: -1, processEnd: -1,
		points: func(func(point, error) bool) {}, weightType: weightSamples, markers: nothing, value: -1,
	}
}

// point is a row of a thread's samples.
type point struct {
	time   int64 // in nanoseconds since the start of the profile
	stack  profile.StackID
	off    bool   // off the CPU
	reason string // if off
	weight int64  // in nanoseconds for weightTime
	cpu    int64  // CPU time since the previous point, in nanoseconds
}

func (k *track) write(j *jsonWriter, t *tables) error {
	j.begin('{')
	j.member("name", k.name)
	j.member("isMainThread", k.main)
	j.member("processName", k.processName)
	j.member("pid", k.pid)
	j.member("tid", k.tid)
	j.member("processType", "default")
	j.key("processStartupTime")
	j.ms(k.processStart)
	j.key("processShutdownTime")
	j.msOrNull(k.processEnd)
	j.key("registerTime")
	j.ms(k.start)
	j.key("unregisterTime")
	j.msOrNull(k.end)
	j.key("pausedRanges")
	j.raw("[]")
	j.member("showMarkersInTimeline", true)
	if k.value >= 0 {
		j.member("fulgurValue", k.value)
	}
	j.key("samples")
	if err := k.writeSamples(j); err != nil {
		return err
	}
	j.key("markers")
	if err := writeMarkers(j, t, k.markers); err != nil {
		return err
	}
	j.end('}')
	return nil
}

// msOrNull writes nanoseconds as milliseconds, or null if negative.
func (j *jsonWriter) msOrNull(ns int64) {
	if ns < 0 {
		j.null()
		return
	}
	j.ms(ns)
}

// writeSamples writes the table of samples. It reads them once for each column.
func (k *track) writeSamples(j *jsonWriter) error {
	j.begin('{')
	n := 0
	err := streamColumn(j, "stack", k.points, func(p point) {
		n++
		k.activity += p.cpu
		k.weight += p.weight
		j.orNull(int64(k.row(p)))
	})
	if err != nil {
		return err
	}
	last := int64(0)
	err = streamColumn(j, "timeDeltas", k.points, func(p point) {
		j.ms(p.time - last)
		last = p.time
	})
	if err != nil {
		return err
	}
	err = streamColumn(j, "weight", k.points, func(p point) {
		if k.weightType == weightTime {
			j.ms(p.weight)
			return
		}
		j.int(p.weight)
	})
	if err != nil {
		return err
	}
	if k.cpu {
		if err := streamColumn(j, "threadCPUDelta", k.points, func(p point) { j.int(p.cpu) }); err != nil {
			return err
		}
	}
	j.member("weightType", k.weightType)
	j.member("length", n)
	j.end('}')
	return nil
}

// streamColumn writes a column with the elements of seq.
func streamColumn[E any](j *jsonWriter, name string, seq iter.Seq2[E, error], value func(E)) error {
	j.key(name)
	j.begin('[')
	for e, err := range seq {
		if err != nil {
			return err
		}
		value(e)
	}
	j.end(']')
	return nil
}

// monotonic yields points with nondecreasing times, as the format requires: clocks are
// read slightly before an event is sent.
func monotonic(seq iter.Seq2[point, error]) iter.Seq2[point, error] {
	return func(yield func(point, error) bool) {
		last := int64(math.MinInt64)
		for p, err := range seq {
			p.time = max(p.time, last)
			last = p.time
			if !yield(p, err) {
				return
			}
		}
	}
}

// maxVisible is the number of threads that are initially visible.
const maxVisible = 30

// visible returns the threads to show initially: the busiest or, if none is busy, those
// with the largest weights. selected are the first of them.
func visible(tracks []*track) (shown, selected []int) {
	for i, k := range tracks {
		if !k.pseudo {
			shown = append(shown, i)
		}
	}
	slices.SortStableFunc(shown, func(a, b int) int {
		return cmp.Or(cmp.Compare(tracks[b].activity, tracks[a].activity), cmp.Compare(tracks[b].weight, tracks[a].weight))
	})
	shown = shown[:min(len(shown), maxVisible)]
	if len(shown) > 0 {
		selected = []int{shown[0]}
	}
	slices.Sort(shown)
	return shown, selected
}
