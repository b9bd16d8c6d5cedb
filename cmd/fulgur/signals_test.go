package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// TestMain lets the test binary act as fulgur view, as a fulgur that shows a recording until its input
// ends, and as one that measures. The last prints when it has begun and when it receives a signal, and then
// keeps running until its input ends. The value of FULGUR_TEST_MEASURE is [repeatTime].
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "view" { // for [show]
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if path := os.Getenv("FULGUR_TEST_SHOW"); path != "" {
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
		if err := show(ctx, path, os.Stderr); err != nil {
			panic(err)
		}
		return
	}
	if value := os.Getenv("FULGUR_TEST_MEASURE"); value != "" {
		var err error
		if repeatTime, err = time.ParseDuration(value); err != nil {
			panic(err)
		}
		ctx, _ := interruptible(context.Background())
		fmt.Println("measuring")
		<-ctx.Done()
		fmt.Println("writing")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

// The view of a recording ends on Ctrl-C, and when fulgur is killed.
func TestShowEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.folded")
	if err := os.WriteFile(path, []byte("main;work 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*exec.Cmd, io.Closer) error{
		"Ctrl-C": func(_ *exec.Cmd, input io.Closer) error { return input.Close() },
		"killed": func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			cmd := testenv.Command(t, os.Args[0])
			cmd.Env = append(os.Environ(), "FULGUR_TEST_SHOW="+path)
			input, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer input.Close()
			lines := bufio.NewReader(stderr)
			first, err := lines.ReadString('\n')
			if err != nil || !strings.Contains(first, "http://127.0.0.1:") {
				t.Errorf("got %q and error %v, want an address", first, err)
			}
			if err := end(cmd, input); err != nil {
				t.Error(err)
			}
			// Standard error ends when both processes have ended.
			rest := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, lines)
				rest <- err
			}()
			if err := testenv.Receive(t, rest, "the view goes on"); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); (err == nil) != (name == "Ctrl-C") {
				t.Errorf("got %v", err)
			}
		})
	}
}

var endingSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// handle makes this process handle signals, so that its children do not inherit that they are
// ignored, as under nohup.
func handle(t *testing.T) {
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(handled) })
}

// The first signal ends the measurement, a later one the process.
func TestSignals(t *testing.T) {
	handle(t)
	for _, sig := range endingSignals {
		t.Run(sig.String(), func(t *testing.T) {
			m := measure(t, 0, os.Args[0])
			m.want(t, "measuring")
			m.signal(t, sig)
			m.want(t, "writing")
			ended := make(chan error, 1)
			go func() { ended <- m.cmd.Wait() }()
			testenv.Await(t, func() bool {
				select {
				case <-ended:
					return true
				default:
					m.signal(t, sig)
					return false
				}
			}, func() string { return "the process survived many signals" })
			status := m.cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != sig {
				t.Errorf("got %v, want %v", m.cmd.ProcessState, sig)
			}
		})
	}
}

// A signal that soon follows the first one does not kill the process.
func TestRepeatedSignals(t *testing.T) {
	handle(t)
	for _, sig := range endingSignals {
		t.Run(sig.String(), func(t *testing.T) {
			m := measure(t, time.Hour, os.Args[0])
			m.want(t, "measuring")
			m.signal(t, sig)
			m.want(t, "writing")
			m.signal(t, sig)
			if err := m.stdin.Close(); err != nil {
				t.Fatal(err)
			}
			if err := m.cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A signal that soon follows the end of a context does not end the next one.
func TestRepeatedSignalsInNext(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		before *time.Time
		first  bool
	}{{nil, true}, {new(now.Add(-2 * repeatTime)), true}, {&now, false}} {
		ctx, cancel := context.WithCancel(t.Context())
		signals, counted := make(chan os.Signal), make(chan bool, 1)
		go func() { counted <- awaitSignal(ctx, signals, c.before) }()
		signals <- syscall.SIGTERM
		select {
		case signals <- syscall.SIGTERM: // it still waits
			cancel()
			if <-counted || c.first {
				t.Errorf("previous signal at %v: a signal had no effect", c.before)
			}
		case <-counted:
			cancel()
			if !c.first {
				t.Errorf("previous signal at %v: a signal had an effect", c.before)
			}
		}
	}
}

// Under nohup, SIGHUP has no effect. If SIGINT is ignored, as in a script's
// background jobs, it still ends the measurement.
func TestIgnoredSignals(t *testing.T) {
	m := measure(t, time.Hour, "sh", "-c", `trap "" HUP INT; exec "$0"`, os.Args[0])
	m.want(t, "measuring")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, ignored, _ := strings.Cut(string(status), "SigIgn:\t")
	ignored, _, _ = strings.Cut(ignored, "\n")
	set, err := strconv.ParseUint(ignored, 16, 64)
	// Others can be ignored where the tests run.
	if hup, interrupt := uint64(1)<<(syscall.SIGHUP-1), uint64(1)<<(syscall.SIGINT-1); err != nil || set&(hup|interrupt) != hup {
		t.Errorf("the signals %s are ignored, want SIGHUP, and not SIGINT", ignored)
	}
	m.signal(t, syscall.SIGINT)
	m.want(t, "writing")
}

// measuring is a process that acts as a fulgur that measures.
type measuring struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

func measure(t *testing.T, repeatTime time.Duration, argv ...string) measuring {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "FULGUR_TEST_MEASURE="+repeatTime.String())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return measuring{cmd, in, bufio.NewScanner(out)}
}

func (m measuring) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := m.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

func (m measuring) want(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		m.lines.Scan()
		if got := m.lines.Text(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}
