// Package speedscope writes profiles in the format of speedscope
// (https://www.speedscope.app), JSON as specified by its file-format-spec.ts: a "sampled"
// profile for each value, with the value as weight. Negative amounts have no place in it.
//
// The first frame of each stack is the task's name, as in folded stacks, below a frame
// "[CPU n]" in profiles by CPU. Stacks are ordered by ID, so speedscope's "Time Order"
// shows shares but no order.
package speedscope

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/label"
)

// schema identifies the format.
const schema = "https://www.speedscope.app/file-format-schema.json"

// Write writes p to w. Equal profiles give equal bytes.
func Write(w io.Writer, p *profile.Profile) error {
	e := &encoder{p: p, out: bufio.NewWriterSize(w, 64<<10), ids: map[frame]int{}, ofFrame: make([]int, len(p.Frames))}
	e.write()
	if err := e.out.Flush(); err != nil {
		return fmt.Errorf("write speedscope profile: %w", err)
	}
	return nil
}

// frame is an entry of the frame table, shared by all frames of a function.
type frame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// encoder writes a profile. Errors stick to out.
type encoder struct {
	p       *profile.Profile
	out     *bufio.Writer
	frames  []frame
	ids     map[frame]int
	ofFrame []int // by profile.FrameID, its index plus one; 0 means none yet
	path    []profile.FrameID
	number  []byte
}

func (e *encoder) write() {
	fmt.Fprintf(e.out, `{"$schema":%s,"exporter":"fulgur","name":%s,"activeProfileIndex":0,"profiles":[`, text(schema), text(e.name()))
	order := e.order()
	for v, typ := range e.p.ValueTypes {
		if v > 0 {
			e.out.WriteByte(',')
		}
		e.profile(v, typ, order)
	}
	e.out.WriteString("],\n\"shared\":{\"frames\":[")
	for i, f := range e.frames {
		if i > 0 {
			e.out.WriteString(",\n")
		}
		b, _ := json.Marshal(f) // cannot fail for strings and a number
		e.out.Write(b)
	}
	e.out.WriteString("]}}\n")
}

// text returns s as a JSON string.
func text(s string) []byte {
	b, _ := json.Marshal(s) // cannot fail
	return b
}

func (e *encoder) name() string {
	return cmp.Or(e.p.Meta.Command, e.p.Meta.Scope, "profile")
}

// order returns the samples by task and stack.
func (e *encoder) order() []int {
	order := make([]int, len(e.p.Samples))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		sa, sb := e.p.Samples[a], e.p.Samples[b]
		return cmp.Or(cmp.Compare(sa.CPU, sb.CPU), cmp.Compare(sa.Task, sb.Task), cmp.Compare(sa.Stack, sb.Stack))
	})
	return order
}

// units maps units to speedscope's names.
var units = map[string]string{
	"nanoseconds": "nanoseconds", "microseconds": "microseconds", "milliseconds": "milliseconds", "seconds": "seconds", "bytes": "bytes",
}

// profile writes the profile of value v.
func (e *encoder) profile(v int, typ profile.ValueType, order []int) {
	fmt.Fprintf(e.out, "\n{\"type\":\"sampled\",\"name\":%s,\"unit\":%s,\"startValue\":0,\"endValue\":%d,\"samples\":[",
		text(typ.Type), text(cmp.Or(units[typ.Unit], "none")), e.total(v))
	first := true
	for _, i := range order {
		s := e.p.Samples[i]
		if s.Values[v] <= 0 {
			continue
		}
		if !first {
			e.out.WriteByte(',')
		}
		first = false
		e.stack(s)
	}
	e.out.WriteString("],\n\"weights\":[")
	first = true
	for _, i := range order {
		n := e.p.Samples[i].Values[v]
		if n <= 0 {
			continue
		}
		if !first {
			e.out.WriteByte(',')
		}
		first = false
		e.out.Write(strconv.AppendInt(e.number[:0], n, 10))
	}
	e.out.WriteString("]}")
}

// total returns the sum of the weights of value v. speedscope refuses files with negative ones.
func (e *encoder) total(v int) int64 {
	if !e.p.HasNegative(v) {
		return e.p.Total(v)
	}
	var sum int64
	for _, s := range e.p.Samples {
		sum += max(0, min(s.Values[v], math.MaxInt64-sum))
	}
	return sum
}

// stack writes the frames of a sample, root first.
func (e *encoder) stack(s profile.Sample) {
	e.out.WriteByte('[')
	if cpu, ok := label.CPU(s.CPU); ok {
		e.index(e.frame(frame{Name: cpu}))
		e.out.WriteByte(',')
	}
	if group := e.p.Group(s.Task); group != "" {
		e.index(e.frame(frame{Name: group}))
		e.out.WriteByte(',')
	}
	e.index(e.frame(frame{Name: label.Task(e.p.Tasks[s.Task])}))
	e.path = e.p.AppendFrames(e.path[:0], s.Stack)
	for _, id := range slices.Backward(e.path) {
		e.out.WriteByte(',')
		if e.ofFrame[id] == 0 {
			fn := e.p.Functions[e.p.Frames[id].Function]
			e.ofFrame[id] = 1 + e.frame(frame{e.p.FrameName(id), fn.File, fn.StartLine})
		}
		e.index(e.ofFrame[id] - 1)
	}
	e.out.WriteByte(']')
}

func (e *encoder) index(n int) { e.out.Write(strconv.AppendInt(e.number[:0], int64(n), 10)) }

// frame returns the index of a frame.
func (e *encoder) frame(f frame) int {
	id, ok := e.ids[f]
	if !ok {
		id = len(e.frames)
		e.ids[f] = id
		e.frames = append(e.frames, f)
	}
	return id
}
