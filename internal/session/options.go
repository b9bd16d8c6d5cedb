// Package session runs one measurement from beginning to end: choose the
// target, attach the source, drain, symbolize, encode. Of the command line, what is
// below it knows but the words for its errors of usage.
package session

import (
	"context"
	"io"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/profile/output"
)

// DefaultStackNodes is how many places in stacks are kept of a recording in time: a
// frame with its callers is one. Each takes about 200 bytes, all in all.
const DefaultStackNodes = 1_000_000

// Options describe what profiles of all kinds have in common.
type Options struct {
	// Target is what to measure. With Command it is filled in from the
	// process that is launched.
	Target target.Target
	// Command, if not empty, is launched stopped, sampled from its first
	// instruction, and its exit ends the profile.
	Command []string

	// Duration is how long to measure; 0 means until the context is cancelled
	// or the target exits. Delay is the time to wait before.
	Duration, Delay time.Duration

	// UserOnly and KernelOnly leave out the other half of the stacks; all
	// samples still count.
	UserOnly, KernelOnly bool
	// PerThread and PerCPU tell threads and CPUs apart.
	PerThread, PerCPU bool
	// NoDemangle keeps the linker's names, ShortNames leaves out the arguments
	// of templates, NoInlines shows neither inlined functions nor lines.
	NoDemangle, ShortNames, NoInlines bool
	// NoSymbols leaves code of files without names, to be found later by build IDs
	// and addresses.
	NoSymbols bool
	// Symfs is a directory with a copy of the files of the system that is
	// measured, searched for debug files before all others; empty for none.
	Symfs string
	// MaxDepth limits the frames of each half of a stack; 0 means 127.
	MaxDepth int

	// Unwind says how user stacks are walked: "auto" or empty by the unwind
	// tables of files, and by frame pointers where there are none; "dwarf" by
	// tables alone; "fp" by frame pointers alone. UnwindMemory bounds the
	// tables in kernel memory, in bytes; 0 takes the default.
	Unwind       string
	UnwindMemory int64

	// RingSize is the ring buffer's size in bytes, CountEntries the size of
	// each of the two count maps, SeenEntries the number of stacks remembered
	// as sent. 0 takes the default.
	RingSize, CountEntries, SeenEntries uint32

	// StackNodes is how many places in stacks are kept of a recording in time; 0
	// takes the default.
	StackNodes uint32

	// Output is the file to write, "-" or empty for Stdout. Format is its
	// format ("folded", "text", "svg", "html", "pprof"); empty takes it from
	// Output's ending, or text.
	Output, Format string
	// Annotate marks kernel frames with "_[k]"; Delimited separates kernel
	// and user frames.
	Annotate, Delimited bool
	// Inverted lets callees hang below their callers in flame graphs.
	Inverted bool

	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Quiet leaves out the summary; Progress shows a progress line on
	// Stderr.
	Quiet, Progress bool
	// Interruptible derives a context that ends when the user asks again to
	// end: for the search for names, where asking before ended the
	// measurement. Nil for one that does not end.
	Interruptible func(context.Context) (ctx context.Context, stop func())
	// Args is the command line as it was typed, recorded in the profile.
	Args []string
	// Source returns the text of a source file for formats that have room for
	// it; nil if none is wanted.
	Source func(file string) (text string, ok bool)
}

// ProfileOptions describe one profile of what runs on the processors.
type ProfileOptions struct {
	Options
	// Event names the sampled event; empty takes hardware cycles where there
	// is a PMU, else cpu-clock.
	Event string
	// Frequency is in samples a second for each CPU, Period in events
	// between samples. One of them is 0.
	Frequency, Period uint64
	// Idle includes samples of idle CPUs.
	Idle bool
	// Wall adds the time that threads spend off the CPU.
	Wall bool
}

// format returns the format that o asks for.
func (o *Options) format() (output.Format, error) {
	f, err := output.Choose(o.Output, o.Format)
	if err != nil {
		return f, err
	}
	return f, f.Allow(o.output())
}

// hasTimes reports whether the format that o asks for has room for times.
func (o *Options) hasTimes() bool {
	f, err := o.format()
	return err == nil && f.HasTimes()
}

// allValues reports whether the format that o asks for has room for all values.
func (o *Options) allValues() bool {
	f, err := o.format()
	return err == nil && f.AllValues()
}

// output are the options of what writes the profile.
func (o *Options) output() output.Options {
	return output.Options{
		Annotate: o.Annotate, Delimited: o.Delimited, Inverted: o.Inverted,
		System: o.Target.Scope == target.System, Source: o.Source,
	}
}

// unwind says how user stacks are walked.
func (o *Options) unwind() unwinding.Options {
	return unwinding.Options{Mode: o.Unwind, Memory: o.UnwindMemory, Scope: o.Target.Scope, KernelOnly: o.KernelOnly}
}
