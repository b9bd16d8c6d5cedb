// Package pprof writes profiles in the format of github.com/google/pprof:
// gzipped protocol buffers, described there in proto/profile.proto.
package pprof

import (
	"compress/gzip"
	"fmt"
	"io"
	"strings"

	pb "github.com/google/pprof/profile"

	"fulgur/internal/encode/describe"
	"fulgur/internal/profile"
)

// Options say what the profile itself does not.
type Options struct {
	// System says that the whole system was profiled: no program stands for
	// it.
	System bool
}

// Write writes p to w. Equal profiles give equal bytes.
//
// What the format leaves open is filled in so:
//
//   - Inlined frames and the frame that they are inlined into are one
//     location with several lines.
//   - A location's address lies within the instruction, as the format's other
//     writers have it: for callers that is the return address less one.
//   - Addresses in files are those at which the file was linked. Mappings of
//     files therefore start at 0, which pprof takes to mean that addresses
//     need no adjustment; it can disassemble the file and find the names of
//     what is unresolved.
//   - The first mapping, which pprof shows as the profile's file, is the program
//     of the process with the most samples, or on a whole system the mapping
//     whose code was sampled most.
//   - The period is known, and not 0, where it is the same for all samples: for
//     clocks and where a period was asked for.
//   - A frame without a name is a location without lines.
//   - Each sample has the labels "comm", "pid" and, where they are known,
//     "tid" and "cpu"; a stack whose user part was cut has "stack_end" with
//     the reason.
//   - Comments hold the command line, what was measured where, and what was
//     lost.
//   - Text that is not UTF-8, which the format demands, has U+FFFD in the
//     place of what is wrong. Nothing else is changed in names.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	converted := convert(p, o)
	if err := converted.CheckValid(); err != nil {
		return fmt.Errorf("convert profile to pprof: %w", err)
	}
	// On profiles of whole systems the fastest level saves a third of the
	// time of all encoding, for files a twentieth larger.
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := converted.WriteUncompressed(z); err != nil {
		return fmt.Errorf("write pprof profile: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write pprof profile: %w", err)
	}
	return nil
}

// convert returns p as pprof has it.
func convert(p *profile.Profile, o Options) *pb.Profile {
	out := &pb.Profile{
		TimeNanos:     p.Meta.Start.UnixNano(),
		DurationNanos: p.Meta.Duration.Nanoseconds(),
		Comments:      comments(p),
	}
	if p.Meta.Start.IsZero() {
		out.TimeNanos = 0
	}
	for _, v := range p.ValueTypes {
		out.SampleType = append(out.SampleType, &pb.ValueType{Type: utf8(v.Type), Unit: utf8(v.Unit)})
		// By tradition the last value is the one of most interest.
		out.DefaultSampleType = utf8(v.Type)
	}
	out.PeriodType, out.Period = period(p)

	t := newTables(p)
	labels := labeler{tasks: p.Tasks, seen: map[labelKey]labels{}}
	for _, s := range p.Samples {
		l := labels.of(s)
		out.Sample = append(out.Sample, &pb.Sample{
			Location: t.stack(s.Stack),
			Value:    s.Values,
			Label:    l.text,
			NumLabel: l.number,
		})
	}
	out.Mapping, out.Function, out.Location = t.mappings[1:], t.functions[1:], t.locations
	if id := mainMapping(p, o.System); id != 0 {
		main := t.mappings[id]
		copy(out.Mapping[1:], out.Mapping[:id-1]) // those before it step back
		out.Mapping[0] = main
	}
	return out
}

// period returns what a sample's period counts, which is what the samples'
// weights sum up, and how much of it there is between two samples: 0 if that
// varies.
func period(p *profile.Profile) (*pb.ValueType, int64) {
	if len(p.ValueTypes) == 0 {
		return nil, 0
	}
	weight := p.ValueTypes[len(p.ValueTypes)-1]
	of := &pb.ValueType{Type: utf8(weight.Type), Unit: utf8(weight.Unit)}
	switch {
	case p.Meta.Period > 0:
		return of, int64(p.Meta.Period)
	case p.Meta.Frequency > 0 && weight.Unit == "nanoseconds":
		return of, int64(1e9 / p.Meta.Frequency)
	}
	return of, 0
}

// comments returns what a reader may want to know of the run.
func comments(p *profile.Profile) []string {
	var lines []string
	for _, line := range []string{utf8(p.Meta.Command), describe.Run(p.Meta), describe.Machine(p.Meta)} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	for _, l := range describe.Losses(p.Losses) {
		lines = append(lines, l.What+": "+l.Effect)
	}
	return lines
}

// utf8 returns s with what is not UTF-8 replaced.
func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
