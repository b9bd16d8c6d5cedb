package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile/output"
	"fulgur/internal/remote"
)

// The flags before a command. They are not flags of kong, because the help of all commands would list them.
const (
	onFlag   = "--on"
	keepFlag = "--keep"
)

// away says where a command runs, if not here.
type away struct {
	hosts []remote.Transport
	keep  bool
}

// splitRemote splits a command line into the flags before the command, and the rest. It returns nil if the
// command runs here.
func splitRemote(args []string) (*away, []string, error) {
	a := new(away)
	labels := map[string]bool{}
	for len(args) > 0 {
		name, url, attached := strings.Cut(args[0], "=")
		switch {
		case args[0] == keepFlag && len(a.hosts) > 0:
			a.keep = true
			args = args[1:]
			continue
		case name != onFlag && len(a.hosts) == 0:
			return nil, args, nil
		case name != onFlag:
			return a, args, nil
		}
		args = args[1:]
		if !attached {
			if len(args) == 0 {
				return nil, args, usageError{fmt.Errorf("%s: a value is missing", onFlag)}
			}
			url, args = args[0], args[1:]
		}
		host, err := remote.ParseSSH(url)
		if err != nil {
			return nil, args, err
		}
		if labels[host.Label()] {
			return nil, args, usage.Errorf("%s is given twice", plain.Terminal(url))
		}
		labels[host.Label()] = true
		a.hosts = append(a.hosts, host)
	}
	if len(a.hosts) == 0 {
		return nil, args, nil
	}
	return nil, args, usageError{fmt.Errorf("no command follows %s: give one that measures, as in fulgur --on ssh://HOST profile 10", onFlag)}
}

// afterRemote returns the words of a command line behind the flags before the command, nil if the last
// word is the value of one.
func afterRemote(words []string) []string {
	for len(words) > 1 {
		name, _, attached := strings.Cut(words[0], "=")
		switch {
		case words[0] == keepFlag, name == onFlag && attached:
			words = words[1:]
		case name == onFlag:
			words = words[2:]
		default:
			return words
		}
	}
	return words
}

// command returns a command that runs c elsewhere.
func (a *away) command(c command) (command, error) {
	if err := staysHere(c); err != nil {
		return nil, usageError{err}
	}
	r := &remoteCommand{away: a, of: c}
	var err error
	if r.output, r.log, err = outputsOf(c, len(a.hosts) > 1); err != nil {
		return nil, usageError{err}
	}
	return r, nil
}

// staysHere returns why a command cannot run elsewhere, nil if it can.
func staysHere(c command) error {
	s := subcommands[slices.IndexFunc(subcommands, func(s subcommand) bool { return reflect.TypeOf(s.command()) == reflect.TypeOf(c) })]
	switch c := c.(type) {
	case *agentCommand:
		return errors.New("fulgur agent runs as a service: install it on the host, as docs/agent.md describes")
	case *doctorCommand:
		return nil
	case *profileCommand:
		switch {
		case c.TUI:
			return fmt.Errorf("--tui has no terminal on the host: write a page with -o flame.html, without --tui")
		case c.Serve:
			return fmt.Errorf("--serve shows pages only to browsers on the host: write a page with -o flame.html, without --serve")
		}
	case *boltCommand:
		if c.Optimize != "" {
			return fmt.Errorf("--optimize needs llvm-bolt and the binary on the host: write the profile with -o, and run llvm-bolt here")
		}
	}
	if s.group != measureGroup {
		return fmt.Errorf("fulgur %s measures nothing: run it here, without %s", s.name, onFlag)
	}
	return nil
}

// outputsOf returns the files that a command writes, on one host or several.
func outputsOf(c command, several bool) (out, log remote.Output, err error) {
	if r, ok := c.(*recordCommand); ok {
		r.nameOutput()
	}
	path := field(c, "Output").String()
	switch c := c.(type) {
	case *doctorCommand, *topCommand: // they only write text
		return out, log, nil
	case *profileCommand:
		if c.Interval > 0 {
			out.Form = remote.Series
		}
	}
	if all := field(c, "AllBinaries"); all.Kind() == reflect.Bool && all.Bool() {
		out.Form = remote.Folder
	}
	standard := output.IsStdout(path) || path == "/dev/stdout" || path == "/dev/stderr"
	switch {
	case output.IsURL(path):
		return out, log, errors.New("a profile cannot be sent from another host: write a file, and send it with fulgur convert -o URL FILE")
	case standard && several:
		return out, log, errors.New("several hosts cannot share the standard output: name a file with -o, and each host gets one with its name")
	case !standard && output.IsStream(path):
		return out, log, fmt.Errorf("-o %s is a pipe or a device: for another host, give a file, or write standard output to it", plain.Terminal(path))
	case !standard:
		out.Path = filepath.Clean(path)
		out.Stem, out.Ending = output.SplitEnding(out.Path)
	}
	if out.Form == remote.Folder {
		out.Stem, out.Ending = out.Path, ""
	}
	if path := field(c, "Log").String(); path != "" {
		log.Path = filepath.Clean(path)
		log.Stem, log.Ending = output.SplitEnding(log.Path)
		if filepath.Base(log.Path) == filepath.Base(out.Path) {
			return out, log, errors.New("--log and -o name the same file")
		}
	}
	return out, log, nil
}

// field returns a field of a command that not all have. If it is missing, it is the string "".
func field(c command, name string) reflect.Value {
	if f := reflect.ValueOf(c).Elem().FieldByName(name); f.IsValid() {
		return f
	}
	return reflect.ValueOf(new(string)).Elem()
}

// remoteCommand runs a command elsewhere.
type remoteCommand struct {
	*away
	of          command
	output, log remote.Output
}

func (c *remoteCommand) run(ctx context.Context, env environment) (int, error) {
	if err := awaitOutputs(ctx, c.of, env.stderr); err != nil {
		return exitFailed, err
	}
	quiet := field(c.of, "Quiet")
	return remote.Run(ctx, remote.Options{
		Args: env.args, Output: c.output, Log: c.log, Version: versionLine(),
		Keep: c.keep, Quiet: quiet.Kind() == reflect.Bool && quiet.Bool(),
		Stdout: env.stdout, Stderr: env.stderr, Screen: isTerminal(env.stdout),
		Columns: columns(env.stderr), Progress: isScreen(env.stderr), Interruptible: interruptible,
	}, c.hosts)
}

// hostCommand is fulgur on the other side: without a folder, the process that talks to this side, and
// otherwise the one that it starts, which measures.
type hostCommand struct {
	Folder   string
	Output   string // the name of a file in the folder, or ""
	Log      string // likewise
	Columns  int
	Progress bool
	Command  []string `kong:"-"` // the command line of the other side
}

// launch implements launcher.
func (c *hostCommand) launch(argv []string) { c.Command = argv }

func (*hostCommand) run(_ context.Context, env environment) (int, error) {
	host := remote.Host{Version: versionLine(), Command: func(o remote.Order, folder string) *exec.Cmd {
		args := []string{"fulgur", remote.Subcommand, "--folder=" + folder, "--columns=" + strconv.Itoa(o.Columns)}
		if o.Output != "" {
			args = append(args, "--output="+o.Output)
		}
		if o.Log != "" {
			args = append(args, "--log="+o.Log)
		}
		if o.Progress {
			args = append(args, "--progress")
		}
		return &exec.Cmd{Path: "/proc/self/exe", Args: append(append(args, "--"), o.Args...)}
	}}
	return 0, host.Serve(os.Stdin, env.stdout)
}

// ordered returns the command of the other side, which writes to the folder.
func (c *hostCommand) ordered(stdout, stderr io.Writer) (command, error) {
	selected, err := parse(c.Command, stdout, stderr)
	if err != nil {
		return nil, err
	}
	if selected == nil || staysHere(selected) != nil {
		return nil, errors.New("the other side orders what it cannot") // this cannot happen: it checks this, too
	}
	for name, file := range map[string]string{"Output": c.Output, "Log": c.Log} {
		if file != "" {
			field(selected, name).SetString(filepath.Join(c.Folder, file))
		}
	}
	return selected, nil
}

// forwarded is a standard error whose other end shows it on a terminal.
type forwarded struct {
	io.Writer
	columns  int // 0 if it is no terminal
	progress bool
}
