package decode

import (
	"cmp"
	"context"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	model "fulgur/internal/profile"
	"fulgur/internal/profile/runinfo"
	"fulgur/internal/unwind/stackend"
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
		c.main = in.Mapping[0]
	}
	for _, m := range in.Mapping { // also those without samples
		c.mapping(m)
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
	meta := pprofMeta(in)
	comments, description := in.Comments, ""
	for i, line := range in.Comments { // those of others come after fulgur's
		if text, ok := strings.CutPrefix(line, runinfo.Prefix); ok {
			comments, description = in.Comments[i+1:], text
			break
		}
	}
	meta.Comments = model.ShortComments(comments)
	p, err := c.profile(meta)
	if err != nil {
		return nil, err
	}
	if description != "" {
		restore(p, description)
		if sampled, ok := p.Sampled(); ok && sampled == p.Meta.Every {
			p.Meta.Every = model.Interval{} // fulgur's own
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
	main     *profile.Mapping                      // its mapping, nil if unknown
}

// pprofMeta returns the metadata of a profile.
func pprofMeta(in *profile.Profile) model.Meta {
	m := model.Meta{
		Duration: time.Duration(in.DurationNanos), DocURL: model.ShortName(in.DocURL),
		DropFrames: model.ShortName(in.DropFrames), KeepFrames: model.ShortName(in.KeepFrames),
	}
	// The default is the last value, unless the file names another. Profiles of samples count
	// them by default, as perf and bcc do, unless they also have waits, which are no samples, or
	// elapsed time.
	if n := len(in.SampleType); n > 0 {
		last := in.SampleType[n-1].Type
		m.Value = cmp.Or(in.DefaultSampleType, last)
		if m.Value == last && last != "wall" && last != model.ElapsedTime.Type && in.SampleType[0].Type == "samples" {
			m.Value = ""
		}
		m.ValueGuessed = in.DefaultSampleType == ""
	}
	if in.TimeNanos != 0 {
		m.Start = time.Unix(0, in.TimeNanos)
	}
	if len(in.Comments) > 0 && strings.HasPrefix(in.Comments[0], "fulgur ") {
		m.Command = in.Comments[0]
	}
	if in.PeriodType != nil {
		m.Event = in.PeriodType.Type
		m.Every = model.Interval{Of: model.ValueType{Type: in.PeriodType.Type, Unit: in.PeriodType.Unit}, Amount: in.Period}
		m.Frequency = m.Every.Frequency()
	}
	return m
}

// place interns a sample's stack and task.
func (c *pprofReader) place(s *profile.Sample) (at model.Sample, err error) {
	at.CPU = -1
	var task model.Task
	var owner model.Owner
	fact := func(l model.Label, alone bool) error {
		of, isProgram := l.FromPprof(alone)
		if isProgram {
			return c.label(of)
		}
		switch l.Key {
		case "comm":
			task.Comm = l.Value
		case "pid":
			task.PID = int(l.Number())
		case "tid":
			task.TID = int(l.Number())
		case "cpu":
			at.CPU = int(l.Number())
		case "stack_end":
			at.End = stackend.Parse(l.Value)
		default:
			*owner.PprofField(l.Key) = l.Value
		}
		return nil
	}
	for key, values := range s.Label {
		for _, value := range values {
			if err := fact(model.Label{Key: key, Value: value}, len(values) == 1); err != nil {
				return at, err
			}
		}
	}
	for key, values := range s.NumLabel {
		units := s.NumUnit[key]
		for i, n := range values {
			unit := ""
			if i < len(units) {
				unit = units[i]
			}
			if err := fact(model.NumberLabel(key, n, unit), len(values) == 1); err != nil {
				return at, err
			}
		}
	}
	if task.Comm == "" && c.program != "" {
		task.Comm, task.Guessed = c.program, true
	}
	task.Owner, task.Labels = c.Owner(owner), c.labelSet()
	at.Task = c.Task(task)
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

// noReturn is the address before the return address 0. Go's profiles of threadcreate have such callers.
const noReturn = math.MaxUint64

// makeFrames returns the frames of a location, the outermost first. Its address is
// within the instruction, as proto/profile.proto says: none is a return address.
func (c *pprofReader) makeFrames(l *profile.Location) []model.Frame {
	if l.Address == noReturn {
		l.Address = 0
	}
	f := model.Frame{Kind: c.kind(l), Address: l.Address}
	if m := l.Mapping; m != nil && (m.File != "" || m.BuildID != "") { // legacy formats have an empty one
		f.Mapping = c.mapping(m)
		if model.IsFile(m.File) {
			f.Address = model.Mapping{Start: m.Start, Limit: m.Limit, Offset: m.Offset}.InFile(l.Address)
		}
	}
	if len(l.Line) == 0 {
		return []model.Frame{f}
	}
	frames := make([]model.Frame, 0, len(l.Line))
	for i, line := range slices.Backward(l.Line) {
		f.Function, f.Line, f.Column, f.Inlined = 0, int(line.Line), int(line.Column), i < len(l.Line)-1
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
	case name == model.JITPath, name == "[anon]":
		return model.KindJIT
	case l.Address == 0 && l.Mapping == nil && len(l.Line) > 0 && l.Line[0].Function != nil && strings.HasPrefix(l.Line[0].Function.Name, "["):
		return model.KindMarker
	}
	return model.KindUser
}

func (c *pprofReader) mapping(m *profile.Mapping) model.MappingID {
	id, ok := c.mappings[m]
	if !ok {
		made := model.Mapping{
			Path: m.File, BuildID: m.BuildID, Start: m.Start, Limit: m.Limit, Offset: m.Offset,
			Placed: model.IsFile(m.File), Main: m == c.main, Looked: model.LookedStated,
		}
		for _, flag := range []struct {
			is bool
			model.Looked
		}{
			{m.HasFunctions, model.LookedFunctions}, {m.HasFilenames, model.LookedFilenames},
			{m.HasLineNumbers, model.LookedLines}, {m.HasInlineFrames, model.LookedInlined},
		} {
			if flag.is {
				made.Looked |= flag.Looked
			}
		}
		id = c.Mapping(made)
		c.mappings[m] = id
	}
	return id
}
