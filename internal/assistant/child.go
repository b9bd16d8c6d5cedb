package assistant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"fulgur/internal/linux/child"
)

// Limits of a child.
const (
	maxAnswer   = 256 << 10        // bytes of text on standard output
	maxMessages = 16 << 10         // bytes on standard error
	answerTime  = 2 * time.Minute  // for a question
	endTime     = 30 * time.Second // for a measurement to end, after its duration
	killTime    = 10 * time.Second // for a child to end by itself, after SIGINT
)

// fulgur runs a command line of fulgur within a time limit, with a profile as its standard input, if there is one.
// It returns what the child wrote to standard output and to standard error.
func (s *server) fulgur(ctx context.Context, limit time.Duration, stdin *os.File, args ...string) (output, messages string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, errs := &capped{limit: maxAnswer}, &capped{limit: maxMessages}
	cmd := exec.CommandContext(ctx, s.Program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = killTime
	cmd.Stdout, cmd.Stderr = answer, errs
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if err := child.Start(cmd); err != nil {
		return "", "", err
	}
	err = cmd.Wait()
	messages = strings.TrimSpace(errs.String())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", messages, fmt.Errorf("fulgur %s took longer than %v: %s", args[0], limit, messages)
	case err != nil:
		return "", messages, fmt.Errorf("fulgur %s: %w: %s", args[0], err, messages)
	case answer.cut:
		return "", messages, fmt.Errorf("the answer is larger than %d bytes: ask for fewer rows", maxAnswer)
	}
	return answer.String(), messages, nil
}

// capped keeps the first bytes that are written to it.
type capped struct {
	bytes.Buffer
	limit int
	cut   bool // bytes were dropped
}

func (c *capped) Write(p []byte) (int, error) {
	kept := p[:min(len(p), c.limit-c.Len())]
	c.cut = c.cut || len(kept) < len(p)
	c.Buffer.Write(kept)
	return len(p), nil
}
