package pprof

import (
	"bufio"
	"io"
	"math"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/encode/locations"
	"fulgur/internal/profile/encode/proto"
	"fulgur/internal/profile/runinfo"
)

// encoder writes the messages of a profile one after the other. The format does not
// prescribe their order. As in Go's runtime, the strings, to which all others refer, come
// last. Only the current message and the tables for references are in memory: for a whole
// system, all messages as objects would need more than everything else.
type encoder struct {
	p         *profile.Profile
	w         *bufio.Writer // keeps its first error until Flush
	strings   *stringTable
	locations *locations.Table
	// known holds by mapping what its locations contain.
	known []knowledge
	// body is the current message, part a message within it, and head its prefix.
	body, part, head proto.Message
}

// knowledge is what pprof need not look up in a mapping's file.
type knowledge struct{ functions, filenames, lineNumbers, inlineFrames bool }

func newEncoder(w io.Writer, p *profile.Profile) *encoder {
	return &encoder{
		p: p, w: bufio.NewWriter(w),
		strings: newStringTable(), locations: locations.New(p),
		known: make([]knowledge, len(p.Mappings)),
	}
}

// write writes the profile, with main as its first mapping if it is not 0.
func (e *encoder) write(main profile.MappingID) error {
	e.writeRun()
	e.writeSamples()
	e.writeLocations()
	if main != 0 {
		e.writeMapping(main)
	}
	for id := 1; id < len(e.p.Mappings); id++ {
		if profile.MappingID(id) != main {
			e.writeMapping(profile.MappingID(id))
		}
	}
	e.writeFunctions()
	for _, s := range e.strings.list {
		e.body = append(e.body, s...)
		e.end(profileStringTable)
	}
	return e.w.Flush()
}

// end writes the current message as a field of the profile and begins the next.
func (e *encoder) end(field int) {
	e.head = e.head[:0]
	e.head.Announce(field, len(e.body))
	e.w.Write(e.head)
	e.w.Write(e.body)
	e.body = e.body[:0]
}

// writeRun writes the fields that occur once.
func (e *encoder) writeRun() {
	for _, v := range e.p.ValueTypes {
		e.body = e.appendValueType(e.body, v)
		e.end(profileSampleType)
	}
	var run proto.Message
	m := e.p.Meta
	if !m.Start.IsZero() {
		run.Int(profileTimeNanos, m.Start.UnixNano())
	}
	run.Int(profileDurationNanos, m.Duration.Nanoseconds())
	if i := e.defaultValue(); i >= 0 && !m.ValueGuessed {
		run.Int(profileDefaultSampleType, e.strings.id(e.p.ValueTypes[i].Type))
	}
	if every, ok := e.every(); ok {
		run.Message(profilePeriodType, e.appendValueType(nil, every.Of))
		run.Int(profilePeriod, every.Amount)
	}
	run.Int(profileDropFrames, e.strings.id(m.DropFrames))
	run.Int(profileKeepFrames, e.strings.id(m.KeepFrames))
	run.Int(profileDocURL, e.strings.id(m.DocURL))
	var lines []int64
	for _, line := range comments(e.p) {
		lines = append(lines, e.strings.id(line))
	}
	proto.Packed(&run, profileComment, lines)
	e.w.Write(run)
}

// defaultValue returns the index of the value that pprof shows first, or -1 if there are no values.
// Without one that was selected, it is the value that fulgur shows of the profile itself: a profile of
// several events has values that cannot stand for each other. Samples and their weight can.
func (e *encoder) defaultValue() int {
	if e.p.Meta.Value != "" || len(e.p.ValueTypes) == 0 || e.p.ValueTypes[0].Type == "samples" {
		return e.p.Weight()
	}
	for i := range e.p.ValueTypes {
		if e.p.Total(i) != 0 {
			return i
		}
	}
	return 0
}

// every returns the amount between two samples, and false if the input does not state it.
func (e *encoder) every() (every profile.Interval, ok bool) {
	if every = e.p.Meta.Every; every != (profile.Interval{}) {
		return every, true
	}
	return e.p.Sampled()
}

func (e *encoder) appendValueType(m proto.Message, v profile.ValueType) proto.Message {
	m.Int(valueTypeType, e.strings.id(v.Type))
	m.Int(valueTypeUnit, e.strings.id(v.Unit))
	return m
}

func (e *encoder) writeSamples() {
	labels := labeler{p: e.p, strings: e.strings, seen: map[labelKey]proto.Message{}, programs: map[profile.LabelsID]proto.Message{}}
	for _, s := range e.p.Samples {
		proto.Packed(&e.body, sampleLocationID, e.locations.Stack(s.Stack))
		proto.Packed(&e.body, sampleValue, s.Values)
		e.body = labels.appendTo(e.body, s)
		e.end(profileSample)
	}
}

// writeLocations writes the locations used by samples.
func (e *encoder) writeLocations() {
	for id := 1; id <= e.locations.Len(); id++ {
		frames := e.locations.Frames(uint32(id))
		f := e.p.Frames[frames[0]]
		e.body.Int(locationID, int64(id))
		e.body.Uint(locationMappingID, uint64(f.Mapping))
		if !f.AtFunction || !e.p.Named(frames[0]) { // without a name, tools need the function's address
			address := f.Call()
			if running, ok := e.p.Mappings[f.Mapping].Running(address); ok {
				address = running
			}
			e.body.Uint(locationAddress, address)
		}
		lines := 0
		for _, frame := range frames {
			f := e.p.Frames[frame]
			if f.Function == 0 {
				continue
			}
			e.part = e.part[:0]
			e.part.Uint(lineFunctionID, uint64(f.Function))
			e.part.Int(lineLine, int64(f.Line))
			e.part.Int(lineColumn, int64(f.Column))
			e.body.Message(locationLine, e.part)
			e.note(frame, lines)
			lines++
		}
		e.end(profileLocation)
	}
}

// note records the mapping of frame id, the line with the given index
// in a location.
func (e *encoder) note(id profile.FrameID, index int) {
	f := e.p.Frames[id]
	k := &e.known[f.Mapping]
	k.functions = k.functions || e.p.Named(id)
	k.inlineFrames = k.inlineFrames || index > 0
	k.filenames = k.filenames || e.p.Functions[f.Function].File != ""
	k.lineNumbers = k.lineNumbers || f.Line != 0
}

// writeMapping writes a mapping. Its locations must have been written before. Unless the input
// says where a file was mapped, its mapping covers the whole address space, by which pprof knows
// that addresses are the file's own.
func (e *encoder) writeMapping(id profile.MappingID) {
	m, known := e.p.Mappings[id], e.known[id]
	if m.Looked != 0 {
		known = knowledge{
			functions: m.Looked&profile.LookedFunctions != 0, filenames: m.Looked&profile.LookedFilenames != 0,
			lineNumbers: m.Looked&profile.LookedLines != 0, inlineFrames: m.Looked&profile.LookedInlined != 0,
		}
	}
	e.body.Uint(mappingID, uint64(id))
	if m.Placed || !profile.IsFile(m.Path) {
		e.body.Uint(mappingMemoryStart, m.Start)
		e.body.Uint(mappingMemoryLimit, m.Limit)
		e.body.Uint(mappingFileOffset, m.Offset)
	} else {
		e.body.Uint(mappingMemoryLimit, math.MaxUint64)
	}
	e.body.Int(mappingFilename, e.strings.id(m.Path))
	e.body.Int(mappingBuildID, e.strings.id(m.BuildID))
	e.body.Bool(mappingHasFunctions, known.functions)
	e.body.Bool(mappingHasFilenames, known.filenames)
	e.body.Bool(mappingHasLineNumbers, known.lineNumbers)
	e.body.Bool(mappingHasInlineFrames, known.inlineFrames)
	e.end(profileMapping)
}

func (e *encoder) writeFunctions() {
	for id := 1; id < len(e.p.Functions); id++ {
		f := e.p.Functions[id]
		e.body.Int(functionID, int64(id))
		e.body.Int(functionName, e.strings.id(f.Name))
		e.body.Int(functionSystemName, e.strings.id(f.SystemName))
		e.body.Int(functionFilename, e.strings.id(f.File))
		e.body.Int(functionStartLine, int64(f.StartLine))
		e.end(profileFunction)
	}
}

// comments returns information about the run for readers, and then the comments that the input had.
// It is only the latter if there is nothing else that the format has no field for.
func comments(p *profile.Profile) []string {
	native := runinfo.Native(p)
	if p.Meta.Converted && runinfo.IsEmpty(native) {
		return p.Meta.Comments
	}
	var lines []string
	for _, line := range []string{p.Meta.Command, describe.Run(p.Meta), describe.Machine(p.Meta)} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	for _, l := range describe.Of(p) {
		lines = append(lines, l.String())
	}
	return append(append(lines, runinfo.Prefix+runinfo.Text(native)), p.Meta.Comments...)
}
