package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"fulgur/internal/message/plain"
)

// Transport starts the other side on a machine.
type Transport interface {
	// Label names the machine in messages and in names of files.
	Label() string
	// connect starts the other side, and returns the connection to it.
	connect(context.Context, *setup) (*link, error)
}

// Options are those of a run.
type Options struct {
	// Args is the command line for the other side, without the program's name.
	Args []string
	// Output and Log are the files to bring.
	Output, Log Output
	// Version is the version of this program, which the other side must have, too.
	Version string
	// Keep leaves the program on the machine. Quiet leaves out notes.
	Keep, Quiet bool

	Stdout, Stderr io.Writer
	// Screen says that Stdout is a terminal. Columns is the width of Stderr's, 0 if it is none, and
	// Progress says that it can overwrite a line.
	Screen   bool
	Columns  int
	Progress bool
	// Interruptible returns a context that ends with the next Ctrl-C.
	Interruptible func(context.Context) (ctx context.Context, stop func())

	silence  time.Duration // 0 means defaultSilence
	programs *programs     // nil means those of this program
}

// setup is what a transport needs.
type setup struct {
	version   string
	keep      bool
	programs  *programs
	stderr    io.Writer // for messages of the user's program
	note      func(format string, args ...any)
	connected func() // must be called when the connection no longer asks for anything
	silence   time.Duration
}

// mark returns a word that nobody can foresee.
func (*setup) mark() string { return "fulgur-" + rand.Text() }

// errInterrupted is the error of a run that was interrupted before it began.
var errInterrupted = errors.New("interrupted before the measurement began")

// Run runs fulgur on machines, all at the same time, and returns the highest exit code. It prints errors
// itself, except those of usage, and of its own output. When ctx is done, the measurement ends, and the
// results are brought, as of each further Ctrl-C.
func Run(ctx context.Context, o Options, machines []Transport) (code int, err error) {
	// A reader of the output that has gone must not end this process before it has cleaned up.
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	defer signal.Stop(unread)
	o.silence = cmp.Or(o.silence, defaultSilence)
	messages, out := &shared{w: o.Stderr}, &shared{w: o.Stdout}
	if o.programs == nil {
		o.programs = &programs{found: map[string]*program{}}
	}
	var runs []*run
	for _, m := range machines {
		r := &run{options: &o, machine: m, messages: messages, stdout: out}
		r.receiver = receiver{outputs: []Output{o.Output, o.Log}, limit: maxBytes}
		if len(machines) > 1 {
			r.prefix = m.Label() + ": "
			r.outputs = []Output{o.Output.of(m.Label()), o.Log.of(m.Label())}
		}
		for _, f := range r.outputs {
			if err := f.check(ctx); err != nil {
				return 1, err
			}
		}
		runs = append(runs, r)
	}

	// One after the other may ask for a password. All others go on at the same time.
	var asking sync.Mutex
	each(runs, func(r *run) {
		asking.Lock()
		connected := sync.OnceFunc(asking.Unlock)
		defer connected()
		r.prepare(ctx, connected)
	})
	if ctx.Err() != nil {
		each(runs, (*run).giveUp)
	}
	done := make(chan struct{})
	go o.forward(ctx, done, interrupts-1, func() {
		for _, r := range runs {
			r.interrupt()
		}
	})
	each(runs, (*run).measure)
	close(done)

	for _, r := range runs {
		if r.err != nil {
			if errors.Is(r.err, syscall.EPIPE) {
				err = r.err // nobody reads our output any more
			}
			r.say(plain.Error(r.err))
			r.code = max(r.code, 1)
		}
		code = max(code, r.code)
	}
	return code, err
}

// each calls f for all runs at the same time.
func each(runs []*run, f func(*run)) {
	var all sync.WaitGroup
	for _, r := range runs {
		all.Go(func() { f(r) })
	}
	all.Wait()
}

// interrupts is how many Ctrl-C the other side needs: to end the measurement, to skip the lookup of names,
// and to give up.
const interrupts = 3

// forward calls interrupt for a Ctrl-C that ends ctx, and for more of them. After the last one, they have
// their default effect.
func (o *Options) forward(ctx context.Context, done <-chan struct{}, more int, interrupt func()) {
	select {
	case <-ctx.Done():
	case <-done:
		return
	}
	interrupt()
	if more == 0 {
		return
	}
	next, stop := o.Interruptible(context.WithoutCancel(ctx))
	defer stop()
	o.forward(next, done, more-1, interrupt)
}

// run is that of one machine.
type run struct {
	options  *Options
	machine  Transport
	prefix   string // of messages, if there are several machines
	messages *shared
	stdout   *shared
	receiver

	link   *link
	folder string // of the files on the other side, which its messages name
	code   int
	err    error
}

// say prints a message about the machine.
func (r *run) say(text string) {
	_, _ = fmt.Fprintf(r.messages, "fulgur: %s%s\n", r.prefix, text)
}

// note prints a message that --quiet leaves out.
func (r *run) note(format string, args ...any) {
	if !r.options.Quiet {
		r.say(fmt.Sprintf(format, args...))
	}
}

// The bounds of messages.
const (
	longestMessage = 4 << 10
	longestLine    = 1 << 20
	mostMessages   = 10_000
)

// lines returns a writer of messages.
func (r *run) lines() *lines {
	return &lines{to: r.messages, prefix: r.prefix, longest: longestMessage, most: mostMessages}
}

// prepare connects to the machine, and waits for the other side.
func (r *run) prepare(ctx context.Context, connected func()) {
	if r.err = ctx.Err(); r.err == nil {
		r.err = r.connect(ctx, connected)
	}
	if r.err != nil && ctx.Err() != nil {
		r.err = errInterrupted
	}
}

func (r *run) connect(ctx context.Context, connected func()) error {
	l, err := r.machine.connect(ctx, &setup{
		version: r.options.Version, keep: r.options.Keep, programs: r.options.programs, silence: r.options.silence,
		stderr: r.lines(), note: r.note, connected: connected,
	})
	if err != nil {
		return err
	}
	if err := l.send(hello, []byte(r.options.Version)); err != nil {
		return l.fail(err)
	}
	k, body, err := l.receive()
	if err == nil && k != hello {
		err = errGarbled
	}
	if err == nil && !sameVersion(string(body), r.options.Version) {
		err = fmt.Errorf("the other side is %s, and this is %s: use the same version", plain.Terminal(string(body)), r.options.Version)
	}
	if err != nil {
		return l.fail(err)
	}
	if !l.kept() {
		return l.fail(ctx.Err())
	}
	r.link = l
	return nil
}

// giveUp ends the connection before anything is measured.
func (r *run) giveUp() {
	if r.link != nil {
		r.err = r.link.drop(errInterrupted)
		r.link = nil
	}
}

// sameVersion reports whether two lines of fulgur version differ at most in the platform.
func sameVersion(a, b string) bool {
	platform := func(line string) string {
		words := strings.Fields(line)
		for i, w := range words {
			if strings.HasPrefix(w, "linux/") {
				words[i] = "linux"
			}
		}
		return strings.Join(words, " ")
	}
	return platform(a) == platform(b)
}

// interrupt passes on a Ctrl-C.
func (r *run) interrupt() {
	if r.link != nil {
		_ = r.link.send(interrupt, nil) // the run may have ended
	}
}

// measure sends the order, and takes what comes until the end.
func (r *run) measure() {
	if r.link == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go r.link.beat(ctx)
	o := Order{Args: r.options.Args, Output: r.outputs[0].name(), Log: r.outputs[1].name(), Pod: r.link.pod, Columns: r.options.Columns}
	if r.prefix != "" {
		o.Columns = max(0, o.Columns-len(r.prefix))
	} else {
		o.Progress = r.options.Progress
	}
	if err := r.link.sendValue(order, o); err != nil {
		r.err = r.link.fail(err)
	} else {
		r.err = r.take(ctx)
	}
	r.err = errors.Join(r.err, r.abort())
}

// take takes messages until the other side has ended.
func (r *run) take(ctx context.Context) (err error) {
	messages := r.lines()
	messages.replace, messages.progress = r.rename, r.options.Progress && r.prefix == ""
	defer func() { err = errors.Join(err, messages.end()) }()
	var out io.Writer = r.stdout
	if r.options.Screen || r.prefix != "" {
		text := &lines{to: r.stdout, prefix: r.prefix, longest: longestLine}
		defer func() { err = errors.Join(err, text.end()) }()
		out = text
	}
	for {
		k, body, err := r.link.receive()
		if err != nil {
			return r.link.fail(err)
		}
		if err := r.spend(len(body)); err != nil {
			return r.link.drop(err)
		}
		switch k {
		case stdout:
			_, err = out.Write(body)
		case stderr:
			_, err = messages.Write(body)
		case folder:
			r.folder = string(body)
		case fileName:
			err = r.begin(ctx, body)
		case fileData:
			err = r.data(body)
		case fileEnd:
			err = r.finish()
		case exited:
			if r.code, err = strconv.Atoi(string(body)); err == nil && r.code >= 0 && r.code <= 255 {
				r.link.end()
				return nil
			}
			r.code, err = 1, errGarbled
		}
		if err != nil {
			return r.link.drop(err)
		}
	}
}

// rename names this machine's files in a message of the other side.
func (r *run) rename(line string) string {
	if len(r.folder) < len("/tmp/f") || r.folder[0] != '/' {
		return line
	}
	for _, o := range r.outputs {
		if o.Path != "" {
			to, _ := filepath.Split(o.Path)
			stem := strings.TrimSuffix(filepath.Base(o.Path), o.Ending)
			line = strings.ReplaceAll(line, r.folder+"/"+stem, plain.Terminal(to+stem))
		}
	}
	return line
}
