// Command fulgur is a profiler for Linux: it shows where processes spend their time,
// on the CPU and waiting.
//
// The exit code is 0 for success, 1 for a failed run and 2 for a usage error. If
// fulgur launches a command, it is the command's.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"fulgur/internal/capture/branch"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/capability"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// Exit codes of fulgur itself.
const (
	exitFailed = 1
	exitUsage  = 2
)

// commands lists fulgur's subcommands. A new one is a field here and a file of its
// own.
type commands struct {
	Profile profileCommand `cmd:"" group:"measure" help:"Sample CPU time by stack."`
	Top     topCommand     `cmd:"" group:"measure" help:"Show the hottest functions now, in a terminal."`
	OffCPU  offCPUCommand  `cmd:"" name:"offcpu" group:"measure" help:"Measure off-CPU time by stack."`
	BlockIO blockIOCommand `cmd:"" name:"blockio" group:"measure" help:"Measure disk requests by stack."`
	Faults  faultsCommand  `cmd:"" group:"measure" help:"Count page faults by stack."`
	SoftIRQ softIRQCommand `cmd:"" name:"softirq" group:"measure" help:"Measure time in soft interrupts by stack."`
	RunQ    runQCommand    `cmd:"" name:"runq" group:"measure" help:"Measure run-queue latency by stack."`
	Count   countCommand   `cmd:"" group:"measure" help:"Count tracepoints, function calls and USDT probes by stack."`
	Latency latencyCommand `cmd:"" group:"measure" help:"Measure the time of function calls, or between two events, by stack."`
	Locks   locksCommand   `cmd:"" group:"measure" help:"Measure the time that threads wait for locks, by stack and lock."`
	Alloc   allocCommand   `cmd:"" group:"measure" help:"Measure memory allocations by stack."`
	Record  recordCommand  `cmd:"" group:"measure" help:"Record CPU time, waits, disk requests and page faults on one timeline."`
	Agent   agentCommand   `cmd:"" group:"measure" help:"Profile the machine continuously, and send the profiles to an OpenTelemetry back end."`
	Bolt    boltCommand    `cmd:"" group:"measure" help:"Sample branches, and write a profile for llvm-bolt."`
	AutoFDO autofdoCommand `cmd:"" name:"autofdo" group:"measure" help:"Sample branches, and write a sample profile for clang."`

	View    viewCommand    `cmd:"" group:"files" help:"Show a profile in a browser, with source and assembly."`
	Convert convertCommand `cmd:"" group:"files" help:"Convert a profile to another format, or perf.data to a BOLT or AutoFDO profile."`
	Diff    diffCommand    `cmd:"" group:"files" help:"Compare two profiles."`
	Report  reportCommand  `cmd:"" group:"files" help:"Describe a profile in sentences: the hottest code, waits and losses."`
	Merge   mergeCommand   `cmd:"" group:"files" help:"Merge BOLT profiles."`

	Doctor     doctorCommand     `cmd:"" group:"fulgur" help:"Check what works on this machine, and how to fix the rest."`
	Completion completionCommand `cmd:"" group:"fulgur" help:"Print a completion script for a shell."`
	HelpFor    helpCommand       `cmd:"" name:"help" group:"fulgur" help:"Explain a command and its flags."`
	Version    versionCommand    `cmd:"" group:"fulgur" help:"Print the version."`

	Stepper       stepperCommand       `cmd:"" hidden:"" name:"branch-stepper"` // stepping.Subcommand
	CompleteEvent completeEventCommand `cmd:"" hidden:"" name:"complete-event"` // clidoc.EventCompleter
}

// measureGroup is the group of the commands that measure.
const measureGroup = "measure"

// commandGroups returns the headings of the commands.
func commandGroups() []kong.Group {
	return []kong.Group{
		{Key: measureGroup, Title: "Measure"},
		{Key: "files", Title: "Work on files"},
		{Key: "fulgur", Title: "fulgur itself"},
	}
}

// Help returns the text of fulgur --help besides the commands.
func (*commands) Help() string {
	return `Examples:

    # the whole machine for 10 seconds, as a flame graph
    sudo fulgur profile -o flame.html 10

    # one process, until Ctrl-C
    sudo fulgur profile -p 1234 -o flame.html

    # a command, from its first instruction to its exit
    sudo fulgur profile -o flame.html -- make -j8

    # what works on this machine
    sudo fulgur doctor
`
}

func main() {
	// Do this first, so that even the command line is parsed with the user's own
	// privileges.
	if err := capability.Withhold(); err != nil {
		os.Exit(report(os.Stderr, os.Args[1:], exitFailed, err))
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
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
		return report(stderr, args, exitUsage, err)
	}
	selected, err := parse(args, stdout, stderr)
	if selected == nil && err == nil {
		return 0 // help was printed
	}
	if err == nil && !usesCapabilities(selected) {
		code, err = exitFailed, capability.Drop()
	}
	if err == nil {
		code, err = runLogged(ctx, selected, environment{args: args, stdout: stdout, stderr: stderr})
	}
	return report(stderr, args, code, err)
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
	case *doctorCommand, *completeEventCommand:
		return true
	}
	for f := range reflect.TypeFor[commands]().Fields() {
		if reflect.PointerTo(f.Type) == reflect.TypeOf(c) {
			return f.Tag.Get("group") == measureGroup
		}
	}
	return false
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

// newParser returns the parser of a grammar: commands, or a struct with some of them. It calls helped after it has
// printed help to stdout.
func newParser(grammar any, stdout, stderr io.Writer, helped func(), more ...kong.Option) (*kong.Kong, error) {
	return kong.New(grammar, append(more,
		kong.Name("fulgur"),
		kong.Description("A profiler for Linux: whole machine, processes or commands, without instrumentation."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped() }),
		kong.WithHyphenPrefixedParameters(true), // "-p -1": the value's own error is more helpful
		profileVars(),
		recordVars(),
		kong.Vars{"version": versionLine()},
		kong.ExplicitGroups(slices.Concat(commandGroups(), profileGroups(), convertGroups())),
	)...)
}

// grammarOf returns the grammar for a command line: if its first argument is the name of a
// command, a struct with that command alone. A parser of all commands takes about 10 ms of
// CPU time to build, at each start.
func grammarOf(args []string) any {
	if f, ok := commandField(args); ok {
		return reflect.New(reflect.StructOf([]reflect.StructField{f})).Interface()
	}
	return new(commands)
}

// commandField returns the field of [commands] with the name in the first argument, if
// there is one.
func commandField(args []string) (f reflect.StructField, ok bool) {
	if len(args) > 0 {
		for f := range reflect.TypeFor[commands]().Fields() {
			if args[0] == cmp.Or(f.Tag.Get("name"), strings.ToLower(f.Name)) {
				return f, true
			}
		}
	}
	return f, false
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
	parser, err := newParser(grammarOf(args), stdout, stderr, func() { helped = true }, resolvers...)
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
	if failed := new(kong.ParseError); errors.As(err, &failed) {
		parsed = failed.Context
	}
	// Check this first: kong accepts an empty value, which not all flags reject.
	if parsed != nil {
		if flag := withoutValue(parsed.Flags(), own); flag != "" {
			return nil, usageError{fmt.Errorf("%s: a value is missing", flag)}
		}
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("%w%s", clarify(err), flagHint(err, args))}
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

// withoutValue returns the flag at the end of args if it lacks its value, else "".
func withoutValue(flags []*kong.Flag, args []string) string {
	if len(args) == 0 {
		return ""
	}
	last := args[len(args)-1]
	for _, f := range flags {
		if !f.IsBool() && (last == "--"+f.Name || f.Short != 0 && last == "-"+string(f.Short)) {
			return last
		}
	}
	return ""
}

// unknownLetter matches kong's error for an unknown flag of one letter.
var unknownLetter = regexp.MustCompile(`^(unknown flag -[^-]), did you mean`)

// argumentName matches the name of an argument in kong's error for its value.
var argumentName = regexp.MustCompile(`^\[?<[a-z]+>]?: `)

// missingArguments says which argument is missing, by kong's error.
var missingArguments = map[string]string{
	`expected "<in>"`:          "give a file to convert",
	`expected "<file>"`:        "give a profile, or - for standard input",
	`expected "<base> <new>"`:  "give two profiles to compare",
	`expected "<new>"`:         "give a second profile, to compare with the first",
	`expected "<profile> ..."`: "give the profiles to merge",
	`expected "<shell>"`:       "give a shell: bash, zsh or fish",
}

// clarify makes kong's errors say what is missing, and removes needless parts: the name of an
// argument before our own error, and suggestions for an unknown flag of one letter, because every
// other letter is equally similar.
func clarify(err error) error {
	if missing, ok := missingArguments[err.Error()]; ok {
		return errors.New(missing)
	}
	message := argumentName.ReplaceAllString(err.Error(), "")
	if m := unknownLetter.FindStringSubmatch(message); m != nil {
		message = m[1]
	}
	return errors.New(message)
}

// unknownFlag matches kong's error for an unknown flag.
var unknownFlag = regexp.MustCompile(`^unknown flag ([^ ,]+)`)

// flagHint returns what replaces a flag of other profilers in a command that measures, after an
// error for an unknown one, and "" in other cases.
func flagHint(err error, args []string) string {
	m := unknownFlag.FindStringSubmatch(err.Error())
	command, ok := commandField(args)
	if m == nil || !ok || command.Tag.Get("group") != measureGroup {
		return ""
	}
	_, hasDuration := command.Type.FieldByName("Duration")
	_, hasProfile := command.Type.FieldByName("MaxDepth") // whose stacks have a depth
	switch flag := m[1]; {
	case hasDuration && flag == "--duration":
		return fmt.Sprintf(": the duration is an argument, as in fulgur %s 10", args[0])
	case hasProfile && (flag == "-g" || flag == "--call-graph"):
		return ": stacks are always recorded; --unwind selects how they are found"
	}
	return ""
}

// usageError is an error in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// report prints err, if not nil, which resulted from args. It returns the exit code:
// code, unless the kind of error determines it.
func report(stderr io.Writer, args []string, code int, err error) int {
	if err == nil {
		return code
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitFailed // nothing reads our output any more
	}
	_, _ = fmt.Fprintf(stderr, "fulgur: %s%s\n", plain.Error(err), remedy(err))
	var notStarted *target.CommandError
	switch {
	case errors.As(err, new(usageError)), errors.Is(err, usage.Err):
		_, _ = fmt.Fprintln(stderr, whereHelpIs(args))
		return exitUsage
	case errors.As(err, &notStarted):
		return notStarted.ExitCode()
	case errors.As(err, new(*doctor.Error)), errors.Is(err, branch.ErrNoHardware):
		_, _ = fmt.Fprintln(stderr, "Run fulgur doctor to see what works on this machine.")
	}
	return exitFailed
}
