package decode

import (
	"cmp"
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	model "fulgur/internal/profile"
	"fulgur/internal/profile/runinfo"
)

// readPprof reads a profile of github.com/google/pprof in any format that pprof supports.
// Profiles written by fulgur are restored, except for data that the format cannot represent.
func readPprof(ctx context.Context, r io.Reader) (*model.Profile, error) {
	in, err := parsePprof(ctx, r)
	if err != nil {
		return nil, err
	}
	var types []model.ValueType
	for _, v := range in.SampleType {
		types = append(types, model.ValueType{Type: v.Type, Unit: v.Unit})
	}
	c := &pprofReader{
		collector: newCollector(types...), left: model.MaxFrames,
		mappings: map[*profile.Mapping]model.MappingID{}, known: map[*profile.Location][]model.FrameID{},
	}
	if len(in.Mapping) > 0 && model.IsFile(in.Mapping[0].File) {
		c.program = path.Base(in.Mapping[0].File)
	}
	for _, s := range in.Sample {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at, err := c.place(s)
		if err != nil {
			return nil, err
		}
		for v, n := range s.Value {
			c.Count(at, v, n)
		}
	}
	p, err := c.profile(pprofMeta(in))
	if err != nil {
		return nil, err
	}
	for _, line := range in.Comments {
		if description, ok := strings.CutPrefix(line, runinfo.Prefix); ok {
			restore(p, description)
			break
		}
	}
	return p, nil
}

// pprofReader converts a profile from pprof's model.
type pprofReader struct {
	*collector
	mappings map[*profile.Mapping]model.MappingID
	known    map[*profile.Location][]model.FrameID // outermost first
	left     int                                   // number of frames that may still be read
	program  string                                // the profiled program's name, for samples without one
}

// pprofMeta returns the metadata of a profile.
func pprofMeta(in *profile.Profile) model.Meta {
	m := model.Meta{Duration: time.Duration(in.DurationNanos)}
	// The default is the last value, unless the file names another. Profiles of samples count
	// them by default, as perf and bcc do, unless they also have waits, which are no samples.
	if n := len(in.SampleType); n > 0 {
		last := in.SampleType[n-1].Type
		m.Value = cmp.Or(in.DefaultSampleType, last)
		if m.Value == last && last != "wall" && in.SampleType[0].Type == "samples" {
			m.Value = ""
		}
	}
	if in.TimeNanos != 0 {
		m.Start = time.Unix(0, in.TimeNanos)
	}
	if len(in.Comments) > 0 && strings.HasPrefix(in.Comments[0], "fulgur ") {
		m.Command = in.Comments[0]
	}
	if in.PeriodType != nil {
		m.Event = in.PeriodType.Type
		if in.Period > 0 && in.PeriodType.Unit == "nanoseconds" {
			m.Frequency = uint64(1e9 / in.Period)
		}
	}
	return m
}

// place interns a sample's stack and task.
func (c *pprofReader) place(s *profile.Sample) (at model.Sample, err error) {
	at = model.Sample{CPU: -1, End: model.ParseEnd(text(s, "stack_end"))}
	task := model.Task{Comm: text(s, "comm"), PID: int(number(s, "pid", 0)), TID: int(number(s, "tid", 0))}
	if task.Comm == "" {
		task.Comm = c.program
	}
	task.Owner = c.Owner(model.Owner{
		Container: text(s, "container"), ContainerID: text(s, "container_id"), Image: text(s, "image"),
		Pod: text(s, "pod"), Namespace: text(s, "namespace"), Unit: text(s, "unit"),
	})
	for key := range s.Label {
		if err := c.label(model.FromPprofLabel(key), text(s, key)); err != nil {
			return at, err
		}
	}
	task.Labels = c.labelSet()
	at.Task = c.Task(task)
	at.CPU = int(number(s, "cpu", -1))
	for i := len(s.Location) - 1; i >= 0 && !c.IsCut(at.Stack); i-- {
		frames := c.frames(s.Location[i])
		// A location may have any number of frames, and take a single byte in any number
		// of samples.
		if c.left -= len(frames); c.left < 0 {
			at.Stack = c.Cut()
		}
		for _, f := range frames {
			if at.Stack = c.Push(at.Stack, f); c.IsCut(at.Stack) {
				break
			}
		}
	}
	return at, nil
}

// frames interns the frames of a location.
func (c *pprofReader) frames(l *profile.Location) []model.FrameID {
	ids, ok := c.known[l]
	if !ok {
		for _, f := range c.makeFrames(l) {
			ids = append(ids, c.Frame(f))
		}
		c.known[l] = ids
	}
	return ids
}

// makeFrames returns the frames of a location, the outermost first. Its address is
// within the instruction, as proto/profile.proto says: none is a return address.
func (c *pprofReader) makeFrames(l *profile.Location) []model.Frame {
	f := model.Frame{Kind: c.kind(l), Address: l.Address}
	if m := l.Mapping; m != nil && (m.File != "" || m.BuildID != "") { // legacy formats have an empty one
		f.Mapping = c.mapping(m)
		if model.IsFile(m.File) && m.Start != 0 && l.Address >= m.Start {
			f.Address = l.Address - m.Start + m.Offset
		}
	}
	if len(l.Line) == 0 {
		return []model.Frame{f}
	}
	frames := make([]model.Frame, 0, len(l.Line))
	for i, line := range slices.Backward(l.Line) {
		f.Function, f.Line, f.Inlined = 0, int(line.Line), i < len(l.Line)-1
		if fn := line.Function; fn != nil {
			f.Function = c.Function(model.Function{
				Name: fn.Name, SystemName: fn.SystemName, File: fn.Filename, StartLine: int(fn.StartLine),
			})
		}
		frames = append(frames, f)
	}
	return frames
}

// kind returns the kind of code of a location.
func (c *pprofReader) kind(l *profile.Location) model.Kind {
	name := ""
	if l.Mapping != nil {
		name = l.Mapping.File
	}
	switch {
	case isKernelFile(name), l.Address >= 1<<63:
		return model.KindKernel
	case name == "[jit]", name == "[anon]":
		return model.KindJIT
	case l.Address == 0 && l.Mapping == nil && len(l.Line) > 0 && l.Line[0].Function != nil && strings.HasPrefix(l.Line[0].Function.Name, "["):
		return model.KindMarker
	}
	return model.KindUser
}

func (c *pprofReader) mapping(m *profile.Mapping) model.MappingID {
	id, ok := c.mappings[m]
	if !ok {
		id = c.Mapping(model.Mapping{Path: m.File, BuildID: m.BuildID, Start: m.Start, Limit: m.Limit, Offset: m.Offset})
		c.mappings[m] = id
	}
	return id
}

// text and number return a label of a sample.
func text(s *profile.Sample, key string) string {
	if values := s.Label[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func number(s *profile.Sample, key string, missing int64) int64 {
	if values := s.NumLabel[key]; len(values) > 0 {
		return values[0]
	}
	return missing
}
