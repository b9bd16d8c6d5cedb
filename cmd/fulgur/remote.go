package main

import (
	"cmp"
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
	machines []remote.Transport
	pods     bool // some are pods
	keep     bool
}

// remoteFlags are the values of the flags before a command.
type remoteFlags struct {
	on, context, kubeconfig, image, in []string
}

// value returns where the value of a flag belongs, nil if there is no such flag.
func (f *remoteFlags) value(name string) *[]string {
	return map[string]*[]string{
		onFlag: &f.on, "--context": &f.context, "--kubeconfig": &f.kubeconfig, "--image": &f.image, "--in": &f.in,
	}[name]
}

// splitRemote splits a command line into the flags before the command, of which the first is --on, and the
// rest. It returns nil if the command runs here.
func splitRemote(args []string) (*away, []string, error) {
	if name, _, _ := strings.Cut(strings.Join(args[:min(1, len(args))], ""), "="); name != onFlag {
		return nil, args, nil
	}
	a, f := new(away), new(remoteFlags)
	for len(args) > 0 {
		if args[0] == keepFlag {
			a.keep, args = true, args[1:]
			continue
		}
		name, value, attached := strings.Cut(args[0], "=")
		to := f.value(name)
		if to == nil {
			break
		}
		args = args[1:]
		if !attached && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		if value == "" {
			return nil, args, usageError{fmt.Errorf("%s: a value is missing", name)}
		}
		*to = append(*to, value)
	}
	if err := a.add(f); err != nil {
		return nil, args, err
	}
	if len(args) == 0 {
		return nil, args, usageError{fmt.Errorf("no command follows %s: give one that measures, as in fulgur --on ssh://HOST profile 10", onFlag)}
	}
	return a, args, nil
}

// add adds the machines of the flags.
func (a *away) add(f *remoteFlags) error {
	cluster := remote.Cluster{Image: cmp.Or(last(f.image), os.Getenv("FULGUR_IMAGE"), imageName()), Namespace: last(f.in)}
	for _, flag := range []struct {
		name   string
		values []string
	}{{"--context=", f.context}, {"--kubeconfig=", f.kubeconfig}} {
		if len(flag.values) > 0 {
			cluster.Flags = append(cluster.Flags, flag.name+last(flag.values))
		}
	}
	labels := map[string]bool{}
	for _, url := range f.on {
		var m remote.Transport
		var err error
		if pod, ok := strings.CutPrefix(url, podScheme); ok {
			a.pods = true
			m, err = remote.ParsePod(pod, cluster)
		} else {
			m, err = remote.ParseSSH(url)
		}
		if err != nil {
			return err
		}
		if labels[m.Label()] {
			return usage.Errorf("%s is given twice", plain.Terminal(url))
		}
		labels[m.Label()] = true
		a.machines = append(a.machines, m)
	}
	if a.pods && strings.Contains(cluster.Image, "(devel)") {
		return usage.Errorf("this build has no version, and so no image: name one with --image")
	}
	if !a.pods && len(f.context)+len(f.kubeconfig)+len(f.image)+len(f.in) > 0 {
		return usage.Errorf("--context, --kubeconfig, --image and --in are for pods: %s %sNAMESPACE/POD", onFlag, podScheme)
	}
	return nil
}

// last returns the last value of a flag, "" if there is none.
func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// afterRemote returns the words of a command line behind the flags before the command, nil if the last
// word is the value of one.
func afterRemote(words []string) []string {
	for flags := new(remoteFlags); len(words) > 1; {
		name, _, attached := strings.Cut(words[0], "=")
		switch {
		case words[0] == keepFlag, flags.value(name) != nil && attached:
			words = words[1:]
		case flags.value(name) != nil:
			words = words[2:]
		default:
			return words
		}
	}
	return words
}

// command returns a command that runs c elsewhere.
func (a *away) command(c command) (command, error) {
	err := staysHere(c)
	if err == nil && a.pods {
		err = notOfPods(c)
	}
	if err != nil {
		return nil, usageError{err}
	}
	r := &remoteCommand{away: a, of: c}
	if r.output, r.log, err = outputsOf(c, len(a.machines) > 1); err != nil {
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
	}, c.machines)
}

// hostCommand is fulgur on the other side: without a folder, the process that talks to this side, and
// otherwise the one that it starts, which measures.
type hostCommand struct {
	Folder   string
	Output   string // the name of a file in the folder, or ""
	Log      string // likewise
	Pod      string // the pod to measure, or ""
	Columns  int
	Progress bool
	Idle     string   // keep a pod, with this file: remote.Idle
	Attend   string   // the file of that process
	Command  []string `kong:"-"` // the command line of the other side
}

// launch implements launcher.
func (c *hostCommand) launch(argv []string) { c.Command = argv }

func (c *hostCommand) run(_ context.Context, env environment) (int, error) {
	if c.Idle != "" {
		return 0, remote.Idle(c.Idle)
	}
	leave := func() {}
	if c.Attend != "" {
		var err error
		if leave, err = remote.Attend(c.Attend); err != nil {
			return exitFailed, err
		}
	}
	host := remote.Host{Version: versionLine(), Command: func(o remote.Order, folder string) *exec.Cmd {
		args := []string{"fulgur", remote.Subcommand, "--folder=" + folder, "--columns=" + strconv.Itoa(o.Columns)}
		if o.Output != "" {
			args = append(args, "--output="+o.Output)
		}
		if o.Pod != "" {
			args = append(args, "--pod="+o.Pod)
		}
		if o.Log != "" {
			args = append(args, "--log="+o.Log)
		}
		if o.Progress {
			args = append(args, "--progress")
		}
		return &exec.Cmd{Path: "/proc/self/exe", Args: append(append(args, "--"), o.Args...)}
	}}
	err := host.Serve(os.Stdin, env.stdout)
	if err != nil {
		leave() // nobody comes back
	}
	return 0, err
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
	if f := targetOf(selected); f != nil && f.none() {
		f.Pod = c.Pod
	}
	return selected, nil
}

// forwarded is a standard error whose other end shows it on a terminal.
type forwarded struct {
	io.Writer
	columns  int // 0 if it is no terminal
	progress bool
}

// podScheme begins the URL of a pod.
const podScheme = "pod://"

// imageName returns the name of the image of this version, as make dist builds it.
func imageName() string {
	return "fulgur:" + strings.ReplaceAll(strings.TrimPrefix(buildVersion(), "v"), "+", "-")
}

// targets returns the flags, of a command that has them.
func (f *targetFlags) targets() *targetFlags { return f }

// targetOf returns the flags that choose the target of a command, nil if it has none that can choose a pod.
func targetOf(c command) *targetFlags {
	if f, ok := c.(interface{ targets() *targetFlags }); ok {
		return f.targets()
	}
	return nil
}

// none reports whether the flags choose no target.
func (f *targetFlags) none() bool {
	_, name := f.named()
	return len(f.PID) == 0 && len(f.TID) == 0 && f.Cgroup == "" && name == ""
}

// notOfPods returns why a command cannot measure a pod, nil if it can.
func notOfPods(c command) error {
	if _, ok := c.(*doctorCommand); ok {
		return nil
	}
	if targetOf(c) == nil {
		return errors.New("this command cannot choose a pod: run it on the node, with --on ssh://NODE and --cgroup")
	}
	if f := reflect.ValueOf(c).Elem().FieldByName("Command"); f.IsValid() && f.Len() > 0 {
		return errors.New("the pod is the target: no command can follow \"--\"")
	}
	return nil
}

// kubectlName is the name of fulgur as a plugin of kubectl.
const kubectlName = "kubectl-fulgur"

// fromKubectl returns the command line of fulgur for one of kubectl fulgur: [FLAGS] NAMESPACE/POD COMMAND.
func fromKubectl(args []string) []string {
	var flags []string
	namespace := ""
	for rest := args; len(rest) > 0; rest = rest[1:] {
		name, value, attached := strings.Cut(rest[0], "=")
		of := name == "-n" || name == "--namespace"
		switch {
		case !strings.HasPrefix(rest[0], "-"):
			if len(chosen(rest)) == 1 {
				return args // of fulgur itself, such as version
			}
			pod := rest[0]
			if namespace != "" && !strings.Contains(pod, "/") {
				pod = namespace + "/" + pod
			}
			return slices.Concat([]string{onFlag, podScheme + pod}, flags, rest[1:])
		case !of && new(remoteFlags).value(name) == nil:
			return args
		case !attached && len(rest) > 1:
			rest = rest[1:]
			value = rest[0]
		}
		if of {
			namespace = value
		} else {
			flags = append(flags, name+"="+value)
		}
	}
	return args
}
