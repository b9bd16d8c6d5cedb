package pprof

import (
	"bufio"
	"io"
	"math"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// encoder writes the messages of a profile one after the other. The format does not
// prescribe their order. As in Go's runtime, the strings, to which all others refer, come
// last. Only the current message and the tables for references are in memory: for a whole
// system, all messages as objects would need more than everything else.
type encoder struct {
	p         *profile.Profile
	w         *bufio.Writer // keeps its first error until Flush
	strings   *stringTable
	locations *locations
	// known holds by mapping what its locations contain.
	known []knowledge
	// body is the current message, part a message within it, and head its prefix.
	body, part, head message
}

// knowledge is what pprof need not look up in a mapping's file.
type knowledge struct{ functions, filenames, lineNumbers, inlineFrames bool }

func newEncoder(w io.Writer, p *profile.Profile) *encoder {
	return &encoder{
		p: p, w: bufio.NewWriter(w),
		strings: newStringTable(), locations: newLocations(p),
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
	e.head.announce(field, len(e.body))
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
	var run message
	m := e.p.Meta
	if !m.Start.IsZero() {
		run.int(profileTimeNanos, m.Start.UnixNano())
	}
	run.int(profileDurationNanos, m.Duration.Nanoseconds())
	if n := len(e.p.ValueTypes); n > 0 {
		// By convention the last value is the default. The period has the same unit as
		// the weights of samples.
		weight := e.p.ValueTypes[n-1]
		for _, v := range e.p.ValueTypes {
			if v.Type == m.Value {
				weight = v
			}
		}
		run.int(profileDefaultSampleType, e.strings.id(weight.Type))
		run.message(profilePeriodType, e.appendValueType(nil, weight))
		run.int(profilePeriod, period(m, weight))
	}
	var lines []int64
	for _, line := range comments(e.p) {
		lines = append(lines, e.strings.id(line))
	}
	packed(&run, profileComment, lines)
	e.w.Write(run)
}

func (e *encoder) appendValueType(m message, v profile.ValueType) message {
	m.int(valueTypeType, e.strings.id(v.Type))
	m.int(valueTypeUnit, e.strings.id(v.Unit))
	return m
}

func (e *encoder) writeSamples() {
	labels := labeler{tasks: e.p.Tasks, strings: e.strings, seen: map[labelKey]message{}}
	for _, s := range e.p.Samples {
		packed(&e.body, sampleLocationID, e.locations.stack(s.Stack))
		packed(&e.body, sampleValue, s.Values)
		e.body = append(e.body, labels.of(s)...)
		e.end(profileSample)
	}
}

// writeLocations writes the locations used by samples.
func (e *encoder) writeLocations() {
	for i, run := range e.locations.written {
		runs := e.locations.runs
		f := e.p.Frames[runs[run].frame]
		e.body.int(locationID, int64(i+1))
		e.body.uint(locationMappingID, uint64(f.Mapping))
		e.body.uint(locationAddress, f.Call())
		lines := 0
		for r := run; r != 0; r = runs[r].outer {
			f := e.p.Frames[runs[r].frame]
			if f.Function == 0 {
				continue
			}
			e.part = e.part[:0]
			e.part.uint(lineFunctionID, uint64(f.Function))
			e.part.int(lineLine, int64(f.Line))
			e.body.message(locationLine, e.part)
			e.note(runs[r].frame, lines)
			lines++
		}
		e.end(profileLocation)
	}
}

// note records what is known about the mapping of frame id, the line with the given index
// in a location.
func (e *encoder) note(id profile.FrameID, index int) {
	f := e.p.Frames[id]
	k := &e.known[f.Mapping]
	k.functions = k.functions || e.p.Named(id)
	k.inlineFrames = k.inlineFrames || index > 0
	k.filenames = k.filenames || e.p.Functions[f.Function].File != ""
	k.lineNumbers = k.lineNumbers || f.Line != 0
}

// writeMapping writes a mapping. Its locations must have been written before. The mapping
// of a file covers the whole address space, by which pprof knows that addresses are
// the file's own.
func (e *encoder) writeMapping(id profile.MappingID) {
	m, known := e.p.Mappings[id], e.known[id]
	e.body.uint(mappingID, uint64(id))
	if !isFile(m.Path) {
		e.body.uint(mappingMemoryStart, m.Start)
		e.body.uint(mappingMemoryLimit, m.Limit)
		e.body.uint(mappingFileOffset, m.Offset)
	} else {
		e.body.uint(mappingMemoryLimit, math.MaxUint64)
	}
	e.body.int(mappingFilename, e.strings.id(m.Path))
	e.body.int(mappingBuildID, e.strings.id(m.BuildID))
	e.body.bool(mappingHasFunctions, known.functions)
	e.body.bool(mappingHasFilenames, known.filenames)
	e.body.bool(mappingHasLineNumbers, known.lineNumbers)
	e.body.bool(mappingHasInlineFrames, known.inlineFrames)
	e.end(profileMapping)
}

func (e *encoder) writeFunctions() {
	for id := 1; id < len(e.p.Functions); id++ {
		f := e.p.Functions[id]
		e.body.int(functionID, int64(id))
		e.body.int(functionName, e.strings.id(f.Name))
		e.body.int(functionSystemName, e.strings.id(f.SystemName))
		e.body.int(functionFilename, e.strings.id(f.File))
		e.body.int(functionStartLine, int64(f.StartLine))
		e.end(profileFunction)
	}
}

// period returns the amount of weight between two samples, or 0 if it varies.
func period(m profile.Meta, weight profile.ValueType) int64 {
	switch {
	case m.Period > 0:
		return int64(m.Period)
	case m.Frequency > 0 && weight.Unit == "nanoseconds":
		return int64(1e9 / m.Frequency)
	}
	return 0
}

// comments returns information about the run for readers.
func comments(p *profile.Profile) []string {
	var lines []string
	for _, line := range []string{p.Meta.Command, describe.Run(p.Meta), describe.Machine(p.Meta)} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	for _, l := range describe.Losses(p.Losses) {
		lines = append(lines, l.What+": "+l.Effect)
	}
	return lines
}
