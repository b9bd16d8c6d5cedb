package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// testVersion is the version of both sides.
const testVersion = "fulgur v1.2.3 linux/amd64 go1.26"

// TestMain lets the test binary be the first process of a pod, or the other side, whose commands are those of a shell: the first argument of
// an order, with the folder as $1.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == Subcommand {
		if Idle(os.Args[2]) != nil {
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == Subcommand {
		h := Host{Version: testVersion, Command: func(o Order, folder string) *exec.Cmd {
			return exec.Command("/bin/sh", append([]string{"-c", o.Args[0], "sh", folder, o.Output, o.Log}, o.Args[1:]...)...)
		}}
		if text := os.Getenv("FULGUR_TEST_SILENCE"); text != "" {
			h.silence, _ = time.ParseDuration(text)
		}
		if h.Serve(os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// machine is a machine that a command reaches: this one.
type machine struct {
	label string
	argv  []string
}

func (m machine) Label() string { return m.label }

func (m machine) connect(ctx context.Context, s *setup) (*link, error) {
	s.connected()
	l, err := startLink(ctx, m.argv, s)
	if err == nil {
		l.heard()
	}
	return l, err
}

// self returns a machine that runs the test binary, behind a connection that can be cut without ending it.
func self(t *testing.T, label string) machine {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return machine{label, []string{"/bin/sh", "-c", "cat | " + own + " " + Subcommand + " | cat"}}
}

// shell returns a machine that runs a script instead of fulgur.
func shell(script string) machine { return machine{"bad", []string{"/bin/sh", "-c", script}} }

// buffer is a buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// outcome is what a run has left.
type outcome struct {
	code           int
	err            error
	stdout, stderr buffer
}

// start runs a script on machines. interrupt is a Ctrl-C, and end waits for the end.
func start(t *testing.T, o Options, script string, machines ...Transport) (r *outcome, interrupt func(), end func() *outcome) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	r = new(outcome)
	o.Args, o.Version = append([]string{script}, o.Args...), testVersion
	if o.Stdout == nil {
		o.Stdout = &r.stdout
	}
	o.Stderr = &r.stderr
	presses := make(chan struct{})
	o.Interruptible = func(parent context.Context) (context.Context, func()) {
		ctx, stop := context.WithCancel(parent)
		go func() {
			select {
			case <-presses:
				stop()
			case <-ctx.Done():
			}
		}()
		return ctx, stop
	}
	ctx, stop := o.Interruptible(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		r.code, r.err = Run(ctx, o, machines)
	}()
	return r, func() { presses <- struct{}{} }, func() *outcome {
		t.Helper()
		testenv.Receive(t, done, "the run does not end")
		// If the connection broke, the other side may notice it later.
		var left []string
		testenv.Await(t, func() bool {
			left, _ = filepath.Glob(os.Getenv("TMPDIR") + "/*")
			return len(left) == 0
		}, func() string { return fmt.Sprintf("got %q left on the machine", left) })
		return r
	}
}

// runScript is like start, and waits for the end.
func runScript(t *testing.T, o Options, script string, machines ...Transport) *outcome {
	t.Helper()
	_, _, end := start(t, o, script, machines...)
	return end()
}

// file returns an output at a path, in a folder of its own.
func file(path string) Output {
	ending := filepath.Ext(path)
	return Output{Path: path, Stem: strings.TrimSuffix(path, ending), Ending: ending}
}

// wantFile fails unless a file has the text. Without text, it must not exist.
func wantFile(t *testing.T, path, text string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if text == "" {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %q, %v, want no file", path, got, err)
		}
		return
	}
	if err != nil || string(got) != text {
		t.Errorf("%s: got %q, %v, want %q", path, got, err, text)
	}
}

// octal returns a message as a format of printf.
func octal(k kind, body string) string {
	var b bytes.Buffer
	if err := newPeer(strings.NewReader(""), &b).send(k, []byte(body)); err != nil {
		panic(err)
	}
	var text strings.Builder
	for _, c := range b.Bytes() {
		fmt.Fprintf(&text, `\%03o`, c)
	}
	return text.String()
}
