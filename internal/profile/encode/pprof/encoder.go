package pprof

import (
	"bufio"
	"io"
	"math"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// encoder writes the messages of a profile one after the other. The format
// leaves their order open; as in the profiles of Go's runtime the texts, which
// all others refer to, come last. Only the message being made and the tables
// for references are in memory: for a whole system all messages as objects
// would take more than everything else.
type encoder struct {
	p         *profile.Profile
	w         *bufio.Writer // its first error stays in it until Flush
	strings   *stringTable
	locations *locations
	// known holds by mapping what its locations tell.
	known []knowledge
	// body is the message being made, part one that goes into it, head what
	// announces it.
	body, part, head message
}

// knowledge is what pprof need not look up again in a mapping's file.
type knowledge struct{ functions, filenames, lineNumbers, inlineFrames bool }

func newEncoder(w io.Writer, p *profile.Profile) *encoder {
	return &encoder{
		p: p, w: bufio.NewWriter(w),
		strings: newStringTable(), locations: newLocations(p),
		known: make([]knowledge, len(p.Mappings)),
	}
}

// write writes the profile, with main as its first mapping unless that is 0.
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

// end writes the message being made as a field of the profile and begins
// the next.
func (e *encoder) end(field int) {
	e.head = e.head[:0]
	e.head.announce(field, len(e.body))
	e.w.Write(e.head)
	e.w.Write(e.body)
	e.body = e.body[:0]
}

// writeRun writes what is said once.
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
		// By tradition the last value is the one of most interest. A period
		// counts the same: what the samples' weights sum up.
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

// writeLocations writes the locations that samples referred to.
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
			e.note(f, lines)
			lines++
		}
		e.end(profileLocation)
	}
}

// note records what is known of the mapping of f, the line with the given
// index of a location.
func (e *encoder) note(f profile.Frame, index int) {
	k := &e.known[f.Mapping]
	k.functions = true
	k.inlineFrames = k.inlineFrames || index > 0
	k.filenames = k.filenames || e.p.Functions[f.Function].File != ""
	k.lineNumbers = k.lineNumbers || f.Line != 0
}

// writeMapping writes a mapping, whose locations must have been written. That
// of a file is all of the address space, as pprof knows it from other tools whose
// addresses are the file's own.
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

// period returns how much of weight there is between two samples, 0 if that
// varies.
func period(m profile.Meta, weight profile.ValueType) int64 {
	switch {
	case m.Period > 0:
		return int64(m.Period)
	case m.Frequency > 0 && weight.Unit == "nanoseconds":
		return int64(1e9 / m.Frequency)
	}
	return 0
}

// comments returns what a reader may want to know of the run.
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
