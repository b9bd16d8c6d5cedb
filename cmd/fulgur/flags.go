package main

import (
	"errors"
	"fmt"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/session"
)

// targetFlags choose what to measure, in the commands that take profiles.
type targetFlags struct {
	PID      ids    `short:"p" name:"pid" placeholder:"PID,..." xor:"target" group:"what" help:"Measure these processes: all their threads, also those that start later."`
	TID      ids    `short:"L" name:"tid" placeholder:"TID,..." xor:"target" group:"what" help:"Measure these threads and no others of their processes."`
	Cgroup   string `placeholder:"PATH" xor:"target" group:"what" help:"Measure the tasks of this cgroup (v2) and of those below it, also those that join later."`
	Children bool   `group:"what" help:"With -p, measure their child processes too, at any depth: those that exist and those that start later. A command's are always measured."`
}

// walkFlags say how stacks are walked.
type walkFlags struct {
	Unwind   string `enum:"auto,dwarf,fp" default:"auto" placeholder:"METHOD" group:"how" help:"Find the callers of user code by the unwind tables that programs and libraries bring along, and by frame pointers where there are none (auto, the default); by tables alone (dwarf); or by frame pointers alone (fp), which most distributions' code does not keep."`
	MaxDepth *count `placeholder:"N" group:"how" help:"Keep at most N frames of each kernel and user stack. Default: 127."`
}

// outputFlags say what becomes of what was measured.
type outputFlags struct {
	Output     string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE in the format that its ending names: .folded, .txt, .svg, .html, .pb.gz, .pprof, .json.gz (for the Firefox Profiler) or .speedscope.json; - is standard output, the default."`
	Format     string `placeholder:"NAME" group:"output" help:"Write in this format whatever the ending: ${formats}. Default on standard output: text."`
	Folded     bool   `short:"f" group:"output" help:"Write folded stacks, a line for each, for flame graphs."`
	Delimited  bool   `short:"d" group:"output" help:"Put a delimiter between kernel and user frames."`
	Annotate   bool   `short:"a" name:"annotations" group:"output" help:"Mark kernel frames with _[k] and inlined functions with _[i]."`
	Inverted   bool   `group:"output" help:"Let callees hang below their callers in flame graphs: icicle graphs."`
	PerThread  bool   `group:"output" help:"Tell threads apart, as COMM-PID/TID in folded stacks and flame graphs."`
	PerCPU     bool   `name:"per-cpu" group:"output" help:"Tell CPUs apart, as a first frame [CPU N] in folded stacks and flame graphs."`
	NoInlines  bool   `group:"output" help:"Show neither inlined functions nor files and lines: names only, for less time and memory."`
	NoDemangle bool   `group:"output" help:"Show C++ and Rust functions by the linker's names."`
	ShortNames bool   `group:"output" help:"Show <...> for the arguments of C++ templates and Rust generics."`
	NoSymbols  bool   `group:"output" help:"Look for no names of programs and libraries: fulgur convert finds them later, by the build IDs, where the files are or from debuginfod servers."`
	Symfs      string `placeholder:"DIR" group:"output" help:"Look for debug files below DIR first, as if it were the root directory."`
	Quiet      bool   `short:"q" group:"output" help:"No progress, no warnings and no summary on standard error."`
}

// limitFlags size what the kernel side keeps.
type limitFlags struct {
	RingSize     *size  `placeholder:"BYTES" group:"limit" help:"Size of the ring that new stacks come through, as 1M; rounded up to a power of 2."`
	CountEntries *count `placeholder:"N" group:"limit" help:"How many different stacks can be counted at a time."`
	SeenEntries  *count `aliases:"stack-storage-size" placeholder:"N" group:"limit" help:"How many stacks are remembered as known (bcc: --stack-storage-size)."`
	UnwindMemory *size  `placeholder:"BYTES" group:"limit" help:"Memory for unwind tables in the kernel, as 64M. Default: 256M. Tables that do not fit come and go."`
}

// recording is what the commands that take profiles share.
type recording struct {
	duration     *seconds
	delay        seconds
	command      []string
	user, kernel bool
	walk         walkFlags
	target       targetFlags
	cpus         cpus
	output       outputFlags
	limits       limitFlags
}

// options translates the flags.
func (r recording) options() (session.Options, error) {
	measured, err := chooseTarget(target.Target{
		PIDs: r.target.PID, TIDs: r.target.TID, CgroupPath: r.target.Cgroup, CPUs: r.cpus, Children: r.target.Children,
	}, r.command)
	if err != nil {
		return session.Options{}, err
	}
	format, err := r.output.format()
	if err != nil {
		return session.Options{}, err
	}
	if r.duration != nil && *r.duration == 0 {
		return session.Options{}, errors.New("a duration of 0 measures nothing: leave it out to go on until Ctrl-C")
	}
	return session.Options{
		Target:       measured,
		Command:      r.command,
		Duration:     time.Duration(orZero(r.duration)),
		Delay:        time.Duration(r.delay),
		UserOnly:     r.user,
		KernelOnly:   r.kernel,
		PerThread:    r.output.PerThread,
		PerCPU:       r.output.PerCPU,
		NoDemangle:   r.output.NoDemangle,
		ShortNames:   r.output.ShortNames,
		NoInlines:    r.output.NoInlines,
		NoSymbols:    r.output.NoSymbols,
		Symfs:        r.output.Symfs,
		MaxDepth:     int(orZero(r.walk.MaxDepth)),
		Unwind:       r.walk.Unwind,
		UnwindMemory: int64(orZero(r.limits.UnwindMemory)),
		RingSize:     uint32(orZero(r.limits.RingSize)),
		CountEntries: uint32(orZero(r.limits.CountEntries)),
		SeenEntries:  uint32(orZero(r.limits.SeenEntries)),
		Output:       r.output.Output,
		Format:       format,
		Annotate:     r.output.Annotate,
		Delimited:    r.output.Delimited,
		Inverted:     r.output.Inverted,
		Quiet:        r.output.Quiet,
	}, nil
}

// complete completes options by the process that they are carried out in.
func (e environment) complete(o *session.Options) {
	o.Stdout, o.Stderr, o.Args = e.stdout, e.stderr, append([]string{"fulgur"}, e.args...)
	o.Interruptible = interruptible
	o.Progress = !o.Quiet && isScreen(e.stderr)
}

// format is the format asked for by name, empty if by none.
func (f outputFlags) format() (string, error) {
	const folded = "folded"
	if !f.Folded {
		return f.Format, nil
	}
	if f.Format != "" && f.Format != folded {
		return "", fmt.Errorf("-f and --format %s contradict each other", f.Format)
	}
	return folded, nil
}
