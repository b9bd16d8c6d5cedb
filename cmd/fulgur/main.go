// Command fulgur is a profiler for Linux: it shows where processes spend their time,
// on the CPU and waiting.
//
// The exit code is 0 for success, 1 for a failed run and 2 for a usage error. It is 3 if fulgur diff
// found a regression beyond a limit. If fulgur launches a command, it is the command's.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"fulgur/internal/branches"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/capability"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/remote"
	"fulgur/internal/ui/clidoc"
)

// Exit codes of fulgur itself.
const (
	exitFailed = 1
	exitUsage  = 2
)

// subcommand is a command as the help text lists it.
type subcommand struct {
	name, group, help string
	command           func() command // without values
}

// subcommands lists fulgur's subcommands. A new one is a line here and a file of its own.
var subcommands = []subcommand{
	{"profile", measureGroup, "Sample CPU time by stack.", with[profileCommand]},
	{"top", measureGroup, "Show the hottest functions now, in a terminal.", with[topCommand]},
	{"offcpu", measureGroup, "Measure off-CPU time by stack.", with[offCPUCommand]},
	{"blockio", measureGroup, "Measure disk requests by stack.", with[blockIOCommand]},
	{"faults", measureGroup, "Count page faults by stack.", with[faultsCommand]},
	{"softirq", measureGroup, "Measure time in soft interrupts by stack.", with[softIRQCommand]},
	{"runq", measureGroup, "Measure run-queue latency by stack.", with[runQCommand]},
	{"count", measureGroup, "Count tracepoints, function calls and USDT probes by stack.", with[countCommand]},
	{"latency", measureGroup, "Measure the time of function calls, or between two events, by stack.", with[latencyCommand]},
	{"slow", measureGroup, "Profile what slow calls or intervals do that the others do not.", with[slowCommand]},
	{"locks", measureGroup, "Measure the time that threads wait for locks, by stack and lock.", with[locksCommand]},
	{"alloc", measureGroup, "Measure memory allocations by stack.", with[allocCommand]},
	{"record", measureGroup, "Record CPU time, waits, disk requests and page faults on one timeline.", with[recordCommand]},
	{"agent", measureGroup, "Profile the machine continuously, and send the profiles to an OpenTelemetry back end.", with[agentCommand]},
	{"bolt", measureGroup, "Sample branches, and write a profile for llvm-bolt.", with[boltCommand]},
	{"autofdo", measureGroup, "Sample branches, and write a sample profile for clang.", with[autofdoCommand]},

	{"view", filesGroup, "Show a profile in a browser, with source and assembly.", with[viewCommand]},
	{"convert", filesGroup, "Convert a profile to another format, or perf.data to a BOLT or AutoFDO profile.", with[convertCommand]},
	{"diff", filesGroup, "Compare profiles, and tell changes from noise.", with[diffCommand]},
	{"report", filesGroup, "Describe a profile in sentences: the hottest code, waits and losses.", with[reportCommand]},
	{"merge", filesGroup, "Add up profiles of many hosts and runs.", with[mergeCommand]},
	{"mcp", filesGroup, "Let an AI assistant measure, and ask about profiles (Model Context Protocol).", with[mcpCommand]},

	{"doctor", ownGroup, "Check what works on this machine, and how to fix the rest.", with[doctorCommand]},
	{"completion", ownGroup, "Print a completion script for a shell.", with[completionCommand]},
	{"help", ownGroup, "Explain a command and its flags.", with[helpCommand]},
	{"version", ownGroup, "Print the version.", with[versionCommand]},

	{branches.StepperCommand, hiddenGroup, "", with[stepperCommand]},
	{remote.Subcommand, hiddenGroup, "", with[hostCommand]},
	{clidoc.Completer, hiddenGroup, "", with[completeCommand]},
}

// with returns a new command with the fields of T for its flags.
func with[T any, C interface {
	*T
	command
}]() command {
	return C(new(T))
}

// The groups of the commands.
const (
	measureGroup = "measure"
	filesGroup   = "files"
	ownGroup     = "fulgur"
	hiddenGroup  = "hidden" // not in the help text
)

// headings are those of groups of commands and of flags, in the order of the help text.
var headings = []kong.Group{
	{Key: measureGroup, Title: "Measure"},
	{Key: filesGroup, Title: "Work on files"},
	{Key: ownGroup, Title: "fulgur itself"},

	{Key: "what", Title: "What to sample"},
	{Key: "how", Title: "How to sample"},
	{Key: "flight", Title: "Flight recorder"},
	{Key: "output", Title: "Output"},
	{Key: "live", Title: "Live output"},
	{Key: "limit", Title: "Limits (the summary reports when one is reached)"},
	{Key: "contents", Title: "What to include"},
	{Key: "server", Title: "Server"},
	{Key: "branches", Title: "Branch profiles"},
}

// program has the flags of fulgur itself: none.
type program struct{}

// Help returns the text of fulgur --help besides the commands.
func (program) Help() string {
	return `Examples:

    # the whole machine for 10 seconds, as a flame graph
    sudo fulgur profile -o flame.html 10

    # one process, until Ctrl-C
    sudo fulgur profile -p 1234 -o flame.html

    # a command, from its first instruction to its exit
    sudo fulgur profile -o flame.html -- make -j8

    # what works on this machine
    sudo fulgur doctor

    # another host, by ssh
    fulgur --on ssh://web1 profile -o flame.html 10

With --on ssh://[USER@]HOST[:PORT] before a command that measures, it runs on that host. fulgur is
copied there, runs with sudo if that asks for no password, and is removed at the end. --on can be given
several times: each host then has files of its own, such as flame-web1.html. --keep after it leaves
fulgur on the host for the next time. docs/remote.md has the details.

As kubectl-fulgur in PATH, fulgur is a plugin of kubectl that measures a pod, from a pod of its own on the
same node: kubectl fulgur NAMESPACE/POD profile -o flame.html 10.
`
}

func main() {
	// Do this first, so that even the command line is parsed with the user's own
	// privileges.
	if err := capability.Withhold(); err != nil {
		os.Exit(reportError(os.Stderr, os.Args[1:], exitFailed, err))
	}
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == kubectlName {
		args = fromKubectl(args)
	}
	os.Exit(run(context.Background(), args, os.Stdout, os.Stderr))
}

// run runs one command line and returns the exit code. It writes errors to stderr,
// and help if the line is empty.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	if f, ok := stderr.(*os.File); ok && isTerminal(f) {
		stderr = messages{f}
	}
	nameFlags()
	defer func() {
		if bug := recover(); bug != nil {
			_, _ = fmt.Fprintf(stderr, "fulgur: internal error: %s\nPlease report this bug with the command line and this stack trace:\n%s", plain.Terminal(fmt.Sprint(bug)), debug.Stack())
			code = exitFailed
		}
	}()
	switch {
	case len(args) == 1 && args[0] == "--version": // not a flag, because the help of all commands would list it
		args = []string{"version"}
	case len(args) == 0:
		_, err := parse([]string{"--help"}, stderr, stderr)
		return reportError(stderr, args, exitUsage, err)
	}
	elsewhere, args, err := splitRemote(args)
	var selected command
	if err == nil {
		selected, err = parse(args, stdout, stderr)
	}
	if selected == nil && err == nil {
		return 0 // help was printed
	}
	if h, ok := selected.(*hostCommand); ok && h.Folder != "" {
		stderr = forwarded{stderr, h.Columns, h.Progress}
		args = h.Command
		selected, err = h.ordered(stdout, stderr)
	}
	if err == nil && elsewhere != nil {
		selected, err = elsewhere.command(selected)
	}
	if err == nil && !usesCapabilities(selected) {
		code, err = exitFailed, capability.Drop()
	}
	if err == nil {
		code, err = runLogged(ctx, selected, environment{args: args, stdout: stdout, stderr: stderr})
	}
	return reportError(stderr, args, code, err)
}

// runLogged runs a command, with a debug log if its flags ask for one.
func runLogged(ctx context.Context, c command, env environment) (code int, err error) {
	stop, err := startLog(c, env.args)
	if err != nil {
		return exitFailed, err
	}
	until := interruptible
	if _, ok := c.(reloader); ok {
		until = serviceable
	}
	ctx, restore := until(ctx)
	defer restore()
	if err = awaitOutputs(ctx, c, env.stderr); err == nil {
		code, err = c.run(ctx, env)
	}
	slog.Debug("end", "exit", code, "error", err)
	return code, errors.Join(err, stop())
}

// usesCapabilities reports whether a command needs the capabilities of fulgur's
// file: those that measure do.
func usesCapabilities(c command) bool {
	switch c.(type) {
	case *doctorCommand, *completeCommand:
		return true
	}
	return slices.ContainsFunc(subcommands, func(s subcommand) bool {
		return s.group == measureGroup && reflect.TypeOf(s.command()) == reflect.TypeOf(c)
	})
}

// environment is a command's view of its process.
type environment struct {
	args           []string // the command line without the program's name
	stdout, stderr io.Writer
}

// command is a parsed subcommand.
type command interface {
	run(context.Context, environment) (exitCode int, err error)
}

// reloader is a command that SIGHUP does not end.
type reloader interface {
	reloads()
}

// launcher is a command that runs a program, given after "--".
type launcher interface {
	launch(argv []string)
}

// setter is a command that changes variables in the help of its flags.
type setter interface {
	vars() kong.Vars
}

// sided is a command that compares files with others, given after "--".
type sided interface {
	newSide(files []string)
}

// newParser returns the parser of some commands. It calls helped after it has printed help to
// stdout.
func newParser(list []subcommand, stdout, stderr io.Writer, helped func(), more ...kong.Option) (*kong.Kong, error) {
	for _, c := range list {
		var tags []string
		if c.group == hiddenGroup {
			tags = []string{`hidden:""`}
		}
		made := c.command()
		if s, ok := made.(setter); ok {
			for name, text := range s.vars() {
				tags = append(tags, fmt.Sprintf("set:%q", name+"="+text))
			}
		}
		more = append(more, kong.DynamicCommand(c.name, c.help, c.group, made, tags...))
	}
	return kong.New(new(program), append(more,
		kong.Name("fulgur"),
		kong.Description("A profiler for Linux: whole machine, processes or commands, without instrumentation."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped() }),
		kong.WithHyphenPrefixedParameters(true), // "-p -1": the value's own error is more helpful
		profileVars(),
		slowVars(),
		recordVars(),
		formatVars(),
		kong.Vars{"version": versionLine(), "peers": ""},
		kong.ExplicitGroups(headings),
	)...)
}

// chosen returns the commands that args can choose: if the first argument is the name of a command,
// only that one. A parser of all commands takes about 10 ms of CPU time to build, at each start.
func chosen(args []string) []subcommand {
	for i := range subcommands {
		if len(args) > 0 && args[0] == subcommands[i].name {
			return subcommands[i : i+1]
		}
	}
	return subcommands
}

// parse returns the chosen subcommand with its flags, nil if args ask for help,
// which is then on stdout. Every error is a usage error.
// files have values for flags that args do not have.
func parse(args []string, stdout, stderr io.Writer, files ...*configFile) (command, error) {
	helped := false
	var resolvers []kong.Option
	for _, f := range files {
		resolvers = append(resolvers, kong.Resolvers(f))
	}
	parser, err := newParser(chosen(args), stdout, stderr, func() { helped = true }, resolvers...)
	if err != nil {
		return nil, err
	}
	// Split at "--" here: kong would parse the rest as arguments of fulgur.
	own, argv, launch := args, []string(nil), false
	if i := slices.Index(args, "--"); i >= 0 {
		own, argv, launch = args[:i], args[i+1:], true
	}
	parsed, err := parser.Parse(own)
	if helped {
		return nil, nil
	}
	failed := new(kong.ParseError)
	if errors.As(err, &failed) {
		parsed = failed.Context
	}
	// Check this first: kong accepts an empty value, which not all flags reject.
	if flag := clidoc.Pending(parsed.Flags(), own[min(1, len(own)):]); flag != "" {
		return nil, usageError{fmt.Errorf("%s: a value is missing", flag)}
	}
	if err != nil {
		return nil, usageError{clarify(failed)}
	}
	if outputs(parsed) > 1 {
		return nil, usageError{errors.New("-o is given more than once, but there is one output: fulgur convert writes it in other formats")}
	}
	selected, ok := reflect.TypeAssert[command](parsed.Selected().Target.Addr())
	if !ok {
		return nil, fmt.Errorf("%s is not a command", parsed.Command())
	}
	if !launch {
		return selected, nil
	}
	if s, ok := selected.(sided); ok {
		if len(argv) == 0 {
			return nil, usageError{errors.New(`no profile follows "--"`)}
		}
		s.newSide(argv)
		return selected, nil
	}
	l, ok := selected.(launcher)
	if !ok {
		return nil, usageError{fmt.Errorf(`%s does not run a command: nothing can follow "--"`, parsed.Command())}
	}
	if len(argv) == 0 {
		return nil, usageError{errors.New(`no command follows "--"`)}
	}
	l.launch(argv)
	return selected, nil
}

// outputs returns how many outputs the command line names.
func outputs(parsed *kong.Context) (n int) {
	for _, part := range parsed.Path {
		if part.Flag != nil && part.Flag.Name == "output" && !part.Resolved {
			n++
		}
	}
	return n
}

// clarify makes kong's errors say which argument is missing and what replaces flags of other
// profilers. It removes needless parts: the name of an argument before our own error, and
// suggestions for an unknown flag of one letter, because every other letter is equally similar.
func clarify(failed *kong.ParseError) error {
	message, command := failed.Error(), cmp.Or(failed.Context.Selected(), failed.Context.Model.Node)
	for _, arg := range command.Positional {
		// Without an error of the context, kong understood all that was given.
		if missing := arg.Tag.Get("missing"); missing != "" && !arg.Set && failed.Context.Error == nil {
			return errors.New(missing)
		}
		message = strings.TrimPrefix(message, arg.ShortSummary()+": ")
	}
	// kong has no exported type for these.
	if word, unexpected := strings.CutPrefix(message, "unexpected argument "); unexpected && failed.Context.Selected() == nil {
		word, similar, _ := strings.Cut(word, ",")
		if hint := commandHint(word); hint != "" && (similar == "" || otherCommands[word] != "") {
			return fmt.Errorf("%s is not a command: %s", word, hint)
		}
	}
	if flag, unknown := strings.CutPrefix(message, "unknown flag "); unknown {
		flag, similar, _ := strings.Cut(flag, ",")
		hint := flagHint(command, flag)
		if failed.Context.Selected() == nil {
			hint = firstHint(failed.Context, flag)
		}
		switch {
		case hint != "":
			message = "unknown flag " + flag + ": " + hint
		case similar != "" && len(flag) == len("-x"):
			message = "unknown flag " + flag
		}
	}
	return errors.New(message)
}

// usageError is an error in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// reportError prints err, if not nil, which resulted from args. It returns the exit code:
// code, unless the kind of error determines it.
func reportError(stderr io.Writer, args []string, code int, err error) int {
	if err == nil {
		return code
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitFailed // nothing reads our output any more
	}
	_, _ = fmt.Fprintf(stderr, "fulgur: %s%s\n", plain.Error(err), remedy(err))
	var notStarted *target.CommandError
	var lacking *doctor.Error
	switch {
	case errors.As(err, new(usageError)), errors.Is(err, usage.Err):
		_, _ = fmt.Fprintln(stderr, whereHelpIs(args))
		return exitUsage
	case errors.As(err, &notStarted):
		return notStarted.ExitCode()
	case errors.As(err, &lacking), errors.Is(err, branches.ErrNoHardware):
		if lacking != nil && lacking.Instead() != "" {
			_, _ = fmt.Fprintln(stderr, lacking.Instead())
		}
		_, _ = fmt.Fprintln(stderr, "Run fulgur doctor to see what works on this machine.")
	}
	return exitFailed
}
