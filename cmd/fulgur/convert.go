package main

import (
	"context"

	"github.com/alecthomas/kong"

	"fulgur/internal/session/offline"
)

// convertCommand writes profiles in other formats, and makes profiles of what
// other tools recorded.
type convertCommand struct {
	Input string `arg:"" name:"in" complete:"file" help:"The file to read; - is standard input."`

	Value    string `placeholder:"TYPE" group:"output" help:"Write this value alone, as cpu. Default: all that the format has room for, or the first of which there is some; of what fulgur record wrote for pprof, the one that it was to show."`
	Annotate bool   `short:"a" name:"annotations" group:"output" help:"Mark kernel frames with _[k] and inlined functions with _[i] in text."`
	Inverted bool   `group:"output" help:"Let callees hang below their callers in flame graphs: icicle graphs."`
	Embed    bool   `name:"embed-sources" group:"output" help:"Put the source files into a profile for the Firefox Profiler, which then shows them wherever it is opened."`

	Binary      string `placeholder:"FILE" xor:"binary" group:"contents" help:"Make the profile of this executable or shared object. It must be the build that ran."`
	AllBinaries bool   `xor:"binary" group:"contents" help:"Make a profile of every file that was mapped and is here, in the directory that -o names."`
	Strict      bool   `group:"contents" help:"Leave out code that ran between two branches with an entry of the kernel in between. perf2bolt does not: it takes the two for neighbours."`
	Basic       bool   `group:"contents" help:"Count the samples' addresses, for perf2bolt --basic-events, where no branches were recorded. BOLT gains little or nothing from it."`

	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE, in the format that its ending names: .folded, .txt, .svg, .html, .pb.gz, .json.gz (for the Firefox Profiler), .speedscope.json or .preagg (for BOLT); - is standard output, the default. In a directory a profile for BOLT is named by binary and build ID, as fulgur merge knows it."`
	Format string `placeholder:"NAME" group:"output" help:"Write in this format whatever the ending: ${formats} or preagg."`
	LLVM   string `name:"llvm" default:"auto" placeholder:"VERSION" group:"output" help:"Write for this version's perf2bolt: 22 and newer, 16 to 21 (give 16), or auto for that of the llvm-bolt in PATH, else 22. Default: auto."`
	Stats  string `enum:"text,json" default:"text" placeholder:"FORM" group:"output" help:"Write the summary on standard error as text, the default, or json."`
	Quiet  bool   `short:"q" group:"output" help:"No summary and no warnings on standard error."`
}

// convertGroups are the headings of the help text besides fulgur profile's.
func convertGroups() []kong.Group {
	return []kong.Group{{Key: "contents", Title: "What to take"}, {Key: "server", Title: "Server"}}
}

// Help is what fulgur convert --help says beside the flags.
func (*convertCommand) Help() string {
	return `Reads a profile in any format that is known, and writes it in another: what fulgur
wrote as folded stacks, for pprof or the Firefox Profiler, other tools' profiles of
these kinds, perf.data with call chains, text of perf script, and maps of stacks as
bpftrace prints them. Names that perf.data lacks come from the files of this machine,
if they are the same builds. Of a recording, the times are added up.

Of branch records that perf took on a machine that has them, in perf.data or text
of perf script -F pid,ip,brstack --show-mmap-events, it makes profiles for
llvm-bolt. A summary on standard error then says what was counted, what was not and
why, whether it is enough, and what to run next.

The output goes to standard output or FILE, which appears complete or not at all.

Examples:

    # a flame graph of what bpftrace counted
    bpftrace -e 'profile:hz:99 { @[kstack, ustack, comm] = count(); }' > stacks.txt
    fulgur convert -o flame.html stacks.txt

    # what perf recorded, for the Firefox Profiler; unwound by perf if need be
    fulgur convert -o perf.json.gz perf.data
    perf script -F +pid | fulgur convert -o perf.json.gz -

    # with the sources in it, to be read on another machine
    fulgur convert --embed-sources -o with-sources.json.gz cpu.json.gz

    # branches, on the machine that runs the service
    perf record -b -e cycles:u -p 1234 -- sleep 60

    # where the binary is
    fulgur convert --binary ./server -o server.preagg perf.data

    # named by build ID, as fulgur merge knows it
    fulgur convert --binary ./server -o profiles/ perf.data

    # every library, too
    fulgur convert --all-binaries -o profiles perf.data

    # from text, for an older BOLT
    perf script -F pid,ip,brstack --show-mmap-events |
        fulgur convert --format preagg --llvm 16 --binary ./server - > server.preagg
`
}

func (c *convertCommand) run(ctx context.Context, env environment) (int, error) {
	o := c.options()
	o.Stdout, o.Stderr = env.stdout, env.stderr
	return offline.Convert(ctx, o)
}

// options translates the flags.
func (c *convertCommand) options() offline.ConvertOptions {
	return offline.ConvertOptions{
		Input:        c.Input,
		Output:       c.Output,
		Value:        c.Value,
		Annotate:     c.Annotate,
		Inverted:     c.Inverted,
		EmbedSources: c.Embed,
		Format:       c.Format,
		Binary:       c.Binary,
		AllBinaries:  c.AllBinaries,
		LLVM:         c.LLVM,
		Strict:       c.Strict,
		Basic:        c.Basic,
		StatsJSON:    c.Stats == "json",
		Quiet:        c.Quiet,
	}
}
