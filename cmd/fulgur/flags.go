package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/message/plain"
	"fulgur/internal/offline"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/output"
	"fulgur/internal/session"
)

// targetFlags select what to measure, in the commands that write profiles.
type targetFlags struct {
	PID       ids    `short:"p" name:"pid" placeholder:"PID,..." xor:"target" group:"what" help:"Measure these processes, including threads that start later."`
	TID       ids    `short:"L" name:"tid" placeholder:"TID,..." xor:"target" group:"what" help:"Measure only these threads."`
	Cgroup    string `placeholder:"PATH" xor:"target" group:"what" help:"Measure this cgroup (v2) and its descendants, including tasks that join later."`
	Container string `placeholder:"NAME" xor:"target" group:"what" help:"Measure this container, by name, ID or the beginning of its ID: docker, containerd, CRI-O, podman."`
	Pod       string `placeholder:"NS/NAME" xor:"target" group:"what" help:"Measure the containers of this Kubernetes pod on this machine."`
	Unit      string `placeholder:"NAME" xor:"target" group:"what" help:"Measure this systemd unit. A user's unit is user@UID.service/NAME."`
	Children  bool   `group:"what" help:"With -p, include existing and future descendants. A command's descendants are always included."`
}

// named returns the name of the container, pod or unit to measure, and its kind.
func (f targetFlags) named() (profile.Grouping, string) {
	switch {
	case f.Container != "":
		return profile.GroupContainer, f.Container
	case f.Pod != "":
		return profile.GroupPod, f.Pod
	case f.Unit != "":
		return profile.GroupUnit, f.Unit
	}
	return profile.GroupNone, ""
}

// walkFlags select how to unwind stacks.
type walkFlags struct {
	Unwind       string `enum:"auto,dwarf,fp" default:"auto" placeholder:"METHOD" group:"how" help:"How to unwind user stacks: auto, the default, uses unwind tables, and frame pointers for code without tables; dwarf uses tables only; fp uses frame pointers only, which most distributions' code lacks."`
	Interpreters string `enum:"auto,off,only" default:"auto" placeholder:"WHICH" group:"how" help:"Functions of interpreted languages (Python, JavaScript, Java, Ruby): auto, the default, shows them between the native functions; off shows native functions only; only leaves out the interpreter's own functions. Needs unwind tables."`
	MaxDepth     *count `placeholder:"N" group:"how" help:"Keep at most N kernel frames and N user frames of each stack. Default: 127."`
}

// rateFlag is samply's and perf's other name for the frequency.
type rateFlag struct {
	Rate *frequency `short:"r" placeholder:"HZ" xor:"rate" hidden:"" group:"how" help:"Samples per second on each CPU, or max."`
}

// rate returns the rate under either name, 0 if there is none.
func (f rateFlag) rate(frequency *frequency) uint64 { return uint64(orZero(cmp.Or(frequency, f.Rate))) }

// groups is the value of --by.
type groups struct {
	kind  profile.Grouping
	label string // the key, if kind is profile.GroupLabel
	peer  bool   // it is that of fulgur's own label of peers
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *groups) UnmarshalText(text []byte) error {
	if string(text) == offcpu.PeerLabel {
		*g = groups{profile.GroupLabel, offcpu.PeerLabel, true}
		return nil
	}
	name, key, _ := strings.Cut(string(text), "=")
	g.kind, g.label = profile.ParseGrouping(name), key
	if (g.kind == profile.GroupNone) != (name == "none") || (g.kind == profile.GroupLabel) != (key != "") {
		return fmt.Errorf("%q: choose container, pod, unit, label=KEY or peer", text)
	}
	return nil
}

// vars implements [setter]: only waits have peers.
func (*offCPUCommand) vars() kong.Vars {
	return kong.Vars{"peers": "; or the other ends of the sockets that threads wait for: peer"}
}

// offline translates the flag for stored profiles, nil for none.
func (g *groups) offline() *offline.Groups {
	if g == nil {
		return nil
	}
	return &offline.Groups{By: g.kind, Label: g.label}
}

// nativeFlag has py-spy's name.
type nativeFlag struct {
	Native bool `group:"output" help:"In tables, count the time of interpreters and language runtimes for their own native functions. Without it, it belongs to the functions of Python, JavaScript, Java and Ruby that run in them."`
}

// outputFlags select the output.
type outputFlags struct {
	Output    string  `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE, in the format of its ending: ${endings}. - is standard output, the default. If FILE is a URL, send the profile to an OpenTelemetry back end."`
	Format    string  `placeholder:"NAME" complete:"format" group:"output" help:"Output format: ${formats}. Default: by the ending of FILE, or text."`
	Folded    bool    `short:"f" group:"output" help:"Write folded stacks, one line for each stack, for flame graph tools."`
	Delimited bool    `short:"d" group:"output" help:"Insert a delimiter between kernel and user frames."`
	Annotate  bool    `short:"a" name:"annotations" group:"output" help:"Mark kernel frames with _[k] and inlined functions with _[i]."`
	Inverted  bool    `group:"output" help:"Draw flame graphs upside down, as icicle graphs."`
	Width     *pixels `placeholder:"PIXELS" group:"output" help:"Width of pictures (.svg). Default: 1200."`
	PerThread bool    `group:"output" help:"Separate threads, as COMM-PID/TID in folded stacks and flame graphs."`
	By        groups  `placeholder:"KIND" group:"output" help:"Separate containers, Kubernetes pods or systemd units: container, pod or unit; or the values of a label, such as an endpoint, that programs set: label=KEY${peers}. The name is the first frame of folded stacks and flame graphs, and a label in pprof files."`
	PerCPU    bool    `name:"per-cpu" group:"output" help:"Separate CPUs, with a first frame [CPU N] in folded stacks and flame graphs."`
	nativeFlag
	NoInlines  bool   `group:"output" help:"Show function names only, without inlined functions, files and lines. Takes less time and memory."`
	NoDemangle bool   `group:"output" help:"Do not demangle names of C++, Rust, D and OCaml functions."`
	ShortNames bool   `group:"output" help:"Write short names of C++, Rust and Go functions: without template arguments, outer namespaces and package paths."`
	NoSymbols  bool   `group:"output" help:"Do not symbolize programs and libraries now. fulgur convert can do it later, by build ID, from local files or debuginfod."`
	Symfs      string `placeholder:"DIR" group:"output" help:"Look for debug files and binaries in DIR first, as if it were the root directory."`
	Quiet      bool   `short:"q" xor:"talk" group:"output" help:"Do not print progress, warnings and the summary to standard error."`
	Verbose    bool   `short:"v" xor:"talk" group:"output" help:"Print a longer summary: more functions, everything that is missing, with remedies, and fulgur's own cost."`
	logFlag
}

// limitFlags set the sizes of buffers and maps.
type limitFlags struct {
	RingSize     *size  `placeholder:"BYTES" group:"limit" help:"Size of the ring buffer for new stacks, for example 1M; rounded up to a power of 2."`
	CountEntries *count `placeholder:"N" group:"limit" help:"Maximum number of distinct stacks to count at a time."`
	SeenEntries  *count `aliases:"stack-storage-size" placeholder:"N" group:"limit" help:"Number of known stacks to remember (bcc: --stack-storage-size)."`
	UnwindMemory *size  `placeholder:"BYTES" group:"limit" help:"Memory for unwind tables in the kernel, for example 64M. Default: 256M. Tables beyond this are loaded on demand."`
}

// placeFlags choose the places of events.
type placeFlags struct {
	AllowUretprobe bool   `group:"how" help:"Measure functions whose return instructions are unknown, by replacing their return addresses. This can end the program, if it uses coroutines or leaves the function by an exception, longjmp or the end of a thread."`
	MaxProbes      *count `placeholder:"N" group:"limit" help:"Maximum number of places that a pattern may match. Default: 1000."`
}

func (f placeFlags) places() attach.Places {
	return attach.Places{MaxProbes: int(orZero(f.MaxProbes)), Uretprobes: f.AllowUretprobe}
}

// subjectFlags select what to measure and for how long, in the commands that measure.
type subjectFlags struct {
	Duration *seconds `arg:"" optional:"" help:"How long to measure: seconds, or 1m30s. Default: until Ctrl-C or the target exits."`
	targetFlags
	User   bool `short:"U" name:"user-stacks-only" xor:"side" group:"what" help:"Show user stacks only."`
	Kernel bool `short:"K" name:"kernel-stacks-only" xor:"side" group:"what" help:"Show kernel stacks only."`
}

// profileFlags select how to measure and what to write, in the commands that write profiles.
type profileFlags struct {
	Command []string `kong:"-"` // the arguments after "--"
	Delay   seconds  `placeholder:"TIME" group:"how" help:"Wait this long before measuring."`
	walkFlags
	outputFlags
	limitFlags
}

// launch implements launcher.
func (f *profileFlags) launch(argv []string) { f.Command = argv }

// sessionOptions translates the flags.
func sessionOptions(s subjectFlags, f profileFlags) (session.Options, error) {
	measured := target.Target{PIDs: s.PID, TIDs: s.TID, CgroupPath: s.Cgroup, Children: s.Children}
	measured.Named, measured.Name = s.named()
	measured, err := chooseTarget(measured, f.Command)
	if err != nil {
		return session.Options{}, err
	}
	format, err := f.format()
	if err != nil {
		return session.Options{}, err
	}
	if s.Duration != nil && *s.Duration == 0 {
		return session.Options{}, errors.New("a duration of 0 measures nothing: leave it out to measure until Ctrl-C")
	}
	resource, err := resourceFor(f.Output)
	if err != nil {
		return session.Options{}, err
	}
	return session.Options{
		Resource:     resource,
		Target:       measured,
		Command:      f.Command,
		Duration:     time.Duration(orZero(s.Duration)),
		Delay:        time.Duration(f.Delay),
		UserOnly:     s.User,
		KernelOnly:   s.Kernel,
		PerThread:    f.PerThread,
		PerCPU:       f.PerCPU,
		By:           f.By.kind,
		ByLabel:      f.By.label,
		OwnLabel:     f.By.peer,
		NoDemangle:   f.NoDemangle,
		ShortNames:   f.ShortNames,
		NoInlines:    f.NoInlines,
		NoSymbols:    f.NoSymbols,
		Symfs:        f.Symfs,
		MaxDepth:     int(orZero(f.MaxDepth)),
		Unwind:       f.Unwind,
		Interpreters: f.Interpreters,
		UnwindMemory: int64(orZero(f.UnwindMemory)),
		RingSize:     uint32(orZero(f.RingSize)),
		CountEntries: uint32(orZero(f.CountEntries)),
		SeenEntries:  uint32(orZero(f.SeenEntries)),
		Output:       f.Output,
		Format:       format,
		Annotate:     f.Annotate,
		Delimited:    f.Delimited,
		Inverted:     f.Inverted,
		Width:        int(orZero(f.Width)),
		Native:       f.Native,
		Quiet:        f.Quiet,
		Verbose:      f.Verbose,
	}, nil
}

// measure runs a command that measures what the flags select, on the given CPUs; none means
// all.
func (e environment) measure(ctx context.Context, s subjectFlags, f profileFlags, subject source.Subject, cpus ...int) (exitCode int, err error) {
	o, err := sessionOptions(s, f)
	if err != nil {
		return exitUsage, usageError{err}
	}
	o.Target.CPUs = cpus
	e.complete(&o)
	return session.Measure(ctx, o, subject)
}

// complete fills in the options that come from the process's environment.
func (e environment) complete(o *session.Options) {
	o.Stdout, o.Stderr, o.Args = e.stdout, e.stderr, append([]string{"fulgur"}, e.args...)
	o.Screen = e.limits()
	o.Interruptible = interruptible
	o.Progress = !o.Quiet && isScreen(e.stderr)
	o.Columns = columns(e.stderr)
}

// shownStacks is the maximum number of stacks of a profile that a terminal shows.
const shownStacks = 10

// limits returns the limits of text on standard output: none unless it is a terminal.
func (e environment) limits() text.Screen {
	if !isTerminal(e.stdout) {
		return text.Screen{}
	}
	return text.Screen{Stacks: shownStacks, Columns: columns(e.stdout)}
}

// resourceFor returns the attributes of this machine if a profile is sent.
func resourceFor(name string) (map[string]string, error) {
	if !output.IsURL(name) {
		return nil, nil
	}
	return otlpclient.Resource(os.Getenv)
}

// format returns the chosen format, "" if none.
func (f outputFlags) format() (string, error) {
	const folded = "folded"
	if !f.Folded {
		return f.Format, nil
	}
	if f.Format != "" && f.Format != folded {
		return "", fmt.Errorf("-f and --format %s cannot be combined", f.Format)
	}
	// Folded stacks are text, too.
	if named, err := output.Choose(f.Output, ""); f.Format == "" && !output.IsURL(f.Output) && err == nil && named.Name != folded && named.Name != "text" {
		return "", fmt.Errorf("-f writes folded stacks, but the name %s is for %s: leave out -f, or choose another name", plain.Terminal(f.Output), named.Name)
	}
	return folded, nil
}
