package main

import (
	"context"

	"fulgur/internal/branches"
	"fulgur/internal/offline"
)

// convertCommand converts profiles to other formats, including the records of other
// tools.
type convertCommand struct {
	Input string `arg:"" name:"in" complete:"file" missing:"give a file to convert" help:"The file to read; - is standard input."`

	Value      string  `placeholder:"TYPE" group:"output" help:"Write only this value, for example cpu. Default: all values; in formats with a single value, the profile's default value, or else the first that is not 0."`
	By         *groups `placeholder:"KIND" group:"output" help:"Separate the containers, Kubernetes pods or systemd units in a pprof or OTLP profile: container, pod or unit; or the values of a label: label=KEY. The name is the first frame of folded stacks and flame graphs. none removes the groups."`
	Annotate   bool    `short:"a" name:"annotations" group:"output" help:"Mark kernel frames with _[k] and inlined functions with _[i] in text."`
	Inverted   bool    `group:"output" help:"Draw flame graphs upside down, as icicle graphs."`
	Width      *pixels `placeholder:"PIXELS" group:"output" help:"Width of pictures (.svg). Default: 1200."`
	Times      bool    `group:"output" help:"Keep the times of the samples of perf.data in a page (.html): its heat map selects a part of the run. Pages of recordings always have them."`
	ShortNames bool    `group:"output" help:"Write short names of C++, Rust and Go functions: without template arguments, outer namespaces and package paths."`
	Symfs      string  `placeholder:"DIR" group:"output" help:"Look for binaries and debug files in DIR first, as if it were the root directory."`
	Embed      bool    `name:"embed-sources" group:"output" help:"Embed source files in a profile for the Firefox Profiler, which then shows them on any machine."`

	filterFlags

	Unit        string `enum:"count,bytes,ns,us,ms,s," default:"" placeholder:"UNIT" group:"contents" help:"The unit of folded stacks that do not state one: us for bcc's offcputime, or count (the default), bytes, ns, ms or s."`
	Binary      string `placeholder:"FILE" xor:"binary" group:"contents" help:"Make the profile of this executable or shared object. It must be the same build that ran."`
	AllBinaries bool   `xor:"binary" group:"contents" help:"Make a profile of every mapped file that exists here, in the directory given by -o."`
	Kernel      bool   `group:"contents" help:"Make the AutoFDO profile of the kernel that was recorded, from its vmlinux with debug information: --binary, or found by build ID."`
	Strict      bool   `group:"contents" help:"Leave out code between two branches if the kernel ran in between. perf2bolt treats such branches as consecutive."`
	Basic       bool   `group:"contents" help:"Count sample addresses, for perf2bolt --basic-events, if no branches were recorded. Expect less improvement from BOLT."`

	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE, in the format of its ending: ${conversionEndings}. - is standard output, the default. If FILE is a URL, send the profile to an OpenTelemetry back end. If FILE is a directory, a BOLT or AutoFDO profile in it is named by binary and build ID, as fulgur merge expects."`
	Format string `placeholder:"NAME" complete:"conversion" group:"output" help:"Output format: ${conversions}. Default: by the ending of FILE."`
	LLVM   string `name:"llvm" default:"auto" placeholder:"VERSION" group:"output" help:"Write for perf2bolt of this version: 22 (and newer), 16 (16 to 21), or auto (the version of llvm-bolt in PATH, else 22). Default: auto."`
	Stats  string `enum:"text,json" default:"text" placeholder:"FORM" group:"output" help:"Format of the summary on standard error: text, the default, or json."`
	Quiet  bool   `short:"q" group:"output" help:"Do not print the summary and warnings to standard error."`
	logFlag
}

// Help returns the text of fulgur convert --help besides the flags.
func (*convertCommand) Help() string {
	return `Reads a profile in any known format, and writes it in another. It reads folded stacks,
pprof, OTLP and Firefox Profiler files of fulgur and other tools, such as samply, fulgur's
flame graph pages, perf.data with call chains or copied stacks (--call-graph dwarf), the text of perf script, and maps of stacks from
bpftrace. Names that a profile lacks come from files of the same build on this machine,
or from debuginfod if DEBUGINFOD_URLS is set. In formats without a timeline, a recording
has totals.

From the branch records of perf record -b, in perf.data or the text of perf script -F
pid,ip,brstack --show-mmap-events, it makes profiles for llvm-bolt, or sample profiles for
clang (AutoFDO). A summary on standard error then shows the counts, what does not count
and why, whether the profile is sufficient, and the commands to run next.

The output goes to standard output or FILE, which appears complete or not at all. If FILE
is a URL, fulgur sends the profile by OTLP; the standard variables OTEL_EXPORTER_OTLP_...
set the protocol, headers, certificates and so on. If the back end cannot be reached or
asks for a retry, fulgur retries for up to a minute, or until Ctrl-C.

Examples:

    # a flame graph of the stacks that bpftrace counted
    bpftrace -e 'profile:hz:99 { @[kstack, ustack, comm] = count(); }' > stacks.txt
    fulgur convert -o flame.html stacks.txt

    # perf.data for the Firefox Profiler
    fulgur convert -o perf.json.gz perf.data

    # with sources, for use on another machine
    fulgur convert --embed-sources -o with-sources.json.gz cpu.json.gz

    # to an OpenTelemetry Collector
    fulgur convert -o http://127.0.0.1:4318 perf.data

    # record branches, on the machine that runs the service
    perf record -b -e cycles:u -p 1234 -- sleep 60

    # convert them, on a machine with the binary
    fulgur convert --binary ./server -o server.preagg perf.data

    # to a file named by build ID, for fulgur merge
    fulgur convert --binary ./server -o profiles/ perf.data

    # a sample profile for clang, also from a profile for BOLT
    fulgur convert --binary ./server -o server.prof perf.data
    fulgur convert --binary ./server -o server.prof server.preagg

    # a sample profile of the kernel
    perf record -a -b -e cycles:k -- sleep 60
    fulgur convert --kernel -o kernel.prof perf.data

    # every library, too
    fulgur convert --all-binaries -o profiles perf.data

    # from text, for an older BOLT
    perf script -F pid,ip,brstack --show-mmap-events |
        fulgur convert --format preagg --llvm 16 --binary ./server - > server.preagg
`
}

func (c *convertCommand) run(ctx context.Context, env environment) (int, error) {
	o := c.options()
	o.Stdout, o.Stderr, o.Screen = env.stdout, env.stderr, env.limits()
	var err error
	if o.Resource, err = resourceFor(o.Output); err != nil {
		return exitUsage, err
	}
	if o.Filters, err = c.list(); err != nil {
		return exitUsage, err
	}
	return offline.Convert(ctx, o)
}

// options translates the flags.
func (c *convertCommand) options() offline.ConvertOptions {
	return offline.ConvertOptions{
		Input:        c.Input,
		Output:       c.Output,
		Value:        c.Value,
		Unit:         c.Unit,
		By:           c.By.offline(),
		Annotate:     c.Annotate,
		Inverted:     c.Inverted,
		Width:        int(orZero(c.Width)),
		ShortNames:   c.ShortNames,
		Symfs:        c.Symfs,
		Times:        c.Times,
		EmbedSources: c.Embed,
		Format:       c.Format,
		ProfileOptions: branches.ProfileOptions{
			Binary: c.Binary, AllBinaries: c.AllBinaries, Kernel: c.Kernel, LLVM: c.LLVM, Strict: c.Strict, Basic: c.Basic, StatsJSON: c.Stats == "json",
		},
		Quiet: c.Quiet,
	}
}
