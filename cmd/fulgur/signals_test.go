package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// TestMain lets the test binary act as a fulgur that measures: it prints when it has
// begun and when it receives a signal, and then keeps running.
func TestMain(m *testing.M) {
	if os.Getenv("FULGUR_TEST_MEASURE") != "" {
		ctx, _ := interruptible(context.Background())
		fmt.Println("measuring")
		<-ctx.Done()
		fmt.Println("writing")
		select {}
	}
	os.Exit(m.Run())
}

// The first signal ends the measurement, the second the process.
func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			// Children inherit ignored signals, as under nohup, but not
			// handled ones.
			handled := make(chan os.Signal, 1)
			signal.Notify(handled, sig)
			defer signal.Stop(handled)
			lines, cmd := measure(t, os.Args[0])
			wantLine(t, lines, "measuring")
			for _, next := range []string{"writing", ""} {
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				wantLine(t, lines, next)
			}
			_ = cmd.Wait()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != sig {
				t.Errorf("got %v, want %v", cmd.ProcessState, sig)
			}
		})
	}
}

// Under nohup, SIGHUP has no effect. If SIGINT is ignored, as in a script's
// background jobs, it still ends the measurement.
func TestIgnoredSignals(t *testing.T) {
	lines, cmd := measure(t, "sh", "-c", `trap "" HUP INT; exec "$0"`, os.Args[0])
	wantLine(t, lines, "measuring")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	wantLine(t, lines, "writing")
	// If SIGHUP had counted, SIGINT would have been the second signal.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("got %v, want %v", cmd.ProcessState, syscall.SIGTERM)
	}
}

func measure(t *testing.T, argv ...string) (*bufio.Scanner, *exec.Cmd) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "FULGUR_TEST_MEASURE=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return bufio.NewScanner(out), cmd
}

func wantLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	lines.Scan()
	if got := lines.Text(); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}
