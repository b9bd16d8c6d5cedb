package session

import (
	"context"
	"fmt"
	"io"
	"time"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/rules"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/output"
)

// Values of [Options.Interpreters].
const (
	interpretersOff  = "off"
	interpretersOnly = "only"
)

// DefaultStackNodes is the default of [Options.StackNodes]. A node takes about
// 200 bytes in all.
const DefaultStackNodes = 1_000_000

// Options are common to all kinds of profiles.
type Options struct {
	// Target is the target. With Command, the launched process becomes
	// the target.
	Target target.Target
	// Rules select processes among those of the target. Only samples of code on the CPUs and waits
	// can have rules.
	Rules rules.Rules
	// Command, if not empty, is launched stopped and sampled from its first
	// instruction. The profile ends when it exits.
	Command []string

	// Duration is how long to measure; 0 means until the context is
	// canceled or the target exits. Delay is the time to wait before.
	Duration, Delay time.Duration
	// Every is the length of a window, at least [MinWindow]; 0 makes the
	// whole run one window.
	Every time.Duration
	// Limits, if not nil, is asked at the start and at the end of each window how much the
	// measurement may use from then on. It is called by several goroutines.
	Limits func() Limits
	// Ready, if not nil, is called before the first sample, once the
	// measurement is sure to start.
	Ready func()

	// UserOnly and KernelOnly leave out the other half of the stacks; all
	// samples still count.
	UserOnly, KernelOnly bool
	// PerThread and PerCPU keep threads and CPUs separate.
	PerThread, PerCPU bool
	// By groups processes by container, unit or pod. Owners finds these even without
	// groups, and what processes publish about themselves; formats with a place for owners
	// need no option.
	By     profile.Grouping
	Owners bool
	// ByLabel is the key of the label to group by, if By is [profile.GroupLabel].
	ByLabel string
	// OwnLabel means that the subject has the label to group by itself; see [source.Labeler].
	OwnLabel bool
	// Labels reads the labels of the running code even without groups; formats with a place for
	// labels need no option.
	Labels bool
	// NoDemangle keeps the linker's names, ShortNames omits the arguments
	// of templates, NoInlines omits inlined functions and line numbers.
	NoDemangle, ShortNames, NoInlines bool
	// NoSymbols skips symbolization. Build IDs and addresses allow it
	// later.
	NoSymbols bool
	// Symfs is a directory with a copy of the measured system's files.
	// Debug files are searched there first. Empty means none.
	Symfs string
	// MaxDepth limits the frames of each half of a stack; 0 means 127.
	MaxDepth int

	// Unwind selects how user stacks are unwound: "auto" or empty by unwind
	// tables, and by frame pointers in files without them; "dwarf" by
	// tables only; "fp" by frame pointers only. UnwindMemory limits the
	// tables in kernel memory, in bytes; 0 means the default.
	Unwind       string
	UnwindMemory int64
	// Interpreters selects the frames of language runtimes: "auto" or empty for them
	// and native ones, "off" for native ones only, "only" to leave out the frames of
	// the interpreter's own file.
	Interpreters string

	// Via selects how to sample: "bpf" by BPF programs, "perf" by perf events alone, which see only user code of
	// the user's own processes, "ptrace" by stopping their threads for moments, "auto" or empty by the first of these that is
	// possible.
	Via string

	// RingSize is the ring buffer's size in bytes, CountEntries the size of
	// each of the two count maps, SeenEntries the number of stacks
	// remembered as sent. 0 means the default.
	RingSize, CountEntries, SeenEntries uint32

	// Times keeps the times of events in formats that do not always have them. TimesIfAny
	// does so, too, and also allows formats that cannot have them.
	Times, TimesIfAny bool

	// StackNodes limits the nodes of the tree of stacks in a recording with
	// times. A node is a frame with its callers. 0 means
	// [DefaultStackNodes].
	StackNodes uint32

	// Output is the file to write, or the URL to send to; "-" or empty means Stdout. Format
	// is its format ("folded", "text", "svg", "html", "pprof"); empty derives it from
	// Output's ending, or means text.
	Output, Format string
	// Annotate marks kernel frames with "_[k]"; Delimited separates kernel
	// and user frames.
	Annotate, Delimited bool
	// Inverted draws callees below their callers in flame graphs.
	Inverted bool
	// Width is the width of pictures in pixels; 0 means the default.
	Width int
	// Native counts each stack in tables for its leaf, even if that is an interpreter's function.
	Native bool
	// Screen limits text on Stdout, if it is a terminal.
	Screen text.Screen

	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Quiet suppresses the summary; Progress shows a progress line on
	// Stderr.
	Quiet, Progress bool
	// Verbose prints the summary with everything that is missing, rather than the answer and the loss
	// that matters most.
	Verbose bool
	// Columns is the width of Stderr's terminal, to which the summary is wrapped; 0 if it is
	// none.
	Columns int
	// Interruptible derives a context that ends when the user interrupts
	// next, for symbolization after an interrupt has ended the measurement,
	// and for waits for the reader of the output. If nil, neither can be
	// interrupted.
	Interruptible func(context.Context) (ctx context.Context, stop func())
	// Args is the command line, as recorded in the profile.
	Args []string
	// Source returns the text of a source file, for formats that embed
	// sources; nil embeds none.
	Source func(file string) (text string, ok bool)
	// Resource has attributes of this machine for OTLP.
	Resource map[string]string
}

// Limits reduce what a measurement with windows costs while it runs. The zero value reduces
// nothing.
type Limits struct {
	// Reduction makes sources measure less, see [source.Reducible]; 0 or 1 for no reduction.
	Reduction uint64
	// NoSymbols skips symbolization, as in [Options], except for names that are still known.
	NoSymbols bool
	// LessMemory keeps few symbol tables between windows, and in the kernel only the unwind
	// tables that are in use.
	LessMemory bool
}

// ProfileOptions describe an on-CPU profile.
type ProfileOptions struct {
	Options
	oncpu.Config
	// Wall adds the time that threads spend off the CPU.
	Wall bool
	// PendingEntries limits the waiting threads to track if Wall is set; 0 means the default.
	PendingEntries uint32
}

// Subject returns the subject of on-CPU samples.
func (o *ProfileOptions) Subject() source.Subject {
	if o.Wall {
		return newWall(o.Config, o.PendingEntries)
	}
	return oncpu.New(o.Config)
}

// format returns the output's format.
func (o *Options) format() (output.Format, error) {
	f, err := output.Choose(o.Output, o.Format)
	if err != nil {
		return f, err
	}
	if o.Times && !f.HasTimes(true) {
		return f, usage.Errorf("only pages and profiles for the Firefox Profiler have times: use a name ending in .html or .json.gz, or choose a format with %s", usage.Format)
	}
	return f, f.Allow(o.output())
}

// hasTimes reports whether the output's format can hold times.
func (o *Options) hasTimes() bool {
	f, err := o.format()
	return err == nil && o.By != profile.GroupLabel && f.HasTimes(o.Times || o.TimesIfAny)
}

// wantsOwners reports whether to find the containers, pods and units of processes.
func (o *Options) wantsOwners() bool {
	f, err := o.format()
	return o.By != profile.GroupNone && o.By != profile.GroupLabel || o.Owners || o.Rules.Any() || err == nil && f.HasOwners()
}

// wantsLabels reports whether to read the labels of the running code.
func (o *Options) wantsLabels() bool {
	f, err := o.format()
	return o.By == profile.GroupLabel && !o.OwnLabel || o.Labels || err == nil && f.HasLabels()
}

// onlyLabel returns the only key of labels whose values are needed, or "" if all are.
func (o *Options) onlyLabel() string {
	f, err := o.format()
	if o.By != profile.GroupLabel || o.OwnLabel || o.Labels || err == nil && f.HasLabels() {
		return ""
	}
	return o.ByLabel
}

// allValues reports whether the output's format can hold all values.
func (o *Options) allValues() bool {
	f, err := o.format()
	return err == nil && f.AllValues()
}

// output returns the options for writing the profile.
func (o *Options) output() output.Options {
	screen := o.Screen
	if !output.IsStdout(o.Output) {
		screen = text.Screen{}
	}
	return output.Options{
		Screen:   screen,
		Annotate: o.Annotate, Delimited: o.Delimited, Inverted: o.Inverted, Width: o.Width, Native: o.Native,
		System: o.Target.Scope == target.System, Source: o.Source, Resource: o.Resource,
	}
}

// warn prints a message unless o is quiet.
func (o *Options) warn(text string) {
	if !o.Quiet {
		fmt.Fprintln(o.Stderr, "fulgur:", text)
	}
}

// unwind returns the options for unwinding user stacks.
func (o *Options) unwind() unwinding.Options {
	return unwinding.Options{Mode: o.Unwind, Memory: o.UnwindMemory, Scope: o.Target.Scope, KernelOnly: o.KernelOnly, NativeOnly: o.Interpreters == interpretersOff}
}
