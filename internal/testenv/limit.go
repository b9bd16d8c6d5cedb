package testenv

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TimeLimit is the time after which a program that a test started is ended. A test that waits
// for its output or its end then fails, and says why.
func TimeLimit() time.Duration {
	limit := Patience(5 * time.Minute)
	if IsLong() {
		limit *= 4
	}
	return limit
}

// Command returns a command that is killed when the test ends or [TimeLimit] is over. In the second
// case it first gets SIGQUIT, for which Go programs print their goroutines.
func Command(t testing.TB, path string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), TimeLimit())
	t.Cleanup(stop)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = Patience(time.Minute)
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil { // the test gave up
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}
