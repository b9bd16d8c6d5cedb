package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// requestsPerSecond is the rate of the requests whose latency is measured. redis is mostly idle.
const requestsPerSecond = 5000

// cost is the cost of counting for redis, measured in pairs of periods: in one of them redis runs
// alone, and in the other one fulgur counts its branches.
type cost struct {
	latency [2][]latencies // alone, counted
	work    [2][]float64   // commands per second while redis is busy; likewise
	busy    summary        // of the busy periods
	stalls  []float64      // longest stalls that fulgur reports in the periods of latency, in seconds
}

// latencies describes the latencies of the requests of a period.
type latencies struct{ p50, p99, p999, max time.Duration }

// measureCost measures the cost of counting for redis.
func (b *bench) measureCost(ctx context.Context) (c cost, err error) {
	p, err := redis.prepare(ctx, b.dir)
	if err != nil {
		return c, err
	}
	commands, err := readCommands(p.training)
	if err != nil {
		return c, err
	}
	for round := range b.rounds {
		progress("redis: latency: round %d of %d", round+1, b.rounds)
		for i := range 2 {
			counted := (round + i) % 2
			s, err := startServer(ctx, p.binary)
			if err != nil {
				return c, err
			}
			l, stall, err := b.latency(ctx, s.(*server), commands, counted == 1)
			s.kill()
			if err != nil {
				return c, err
			}
			c.latency[counted] = append(c.latency[counted], l)
			if counted == 1 {
				c.stalls = append(c.stalls, stall)
			}
		}
	}
	s, err := startServer(ctx, p.binary)
	if err != nil {
		return c, err
	}
	defer s.kill()
	err = b.work(ctx, s.(*server), p.training, &c)
	return c, err
}

// latency measures the latency of requests for a period. If counted is set, fulgur counts the branches
// of the server meanwhile, and stall is the longest stall that it reports.
func (b *bench) latency(ctx context.Context, s *server, commands [][]byte, counted bool) (l latencies, stall float64, err error) {
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		l, err = s.requests(commands, end)
		ended <- err
	}()
	if !counted {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(b.seconds) * time.Second):
		}
		close(end)
		return l, 0, errors.Join(<-ended, ctx.Err())
	}
	cmd, stderr := b.count(ctx, s, b.seconds)
	err = cmd.Run()
	close(end)
	if err := errors.Join(err, <-ended); err != nil {
		return l, 0, fmt.Errorf("%v: %w\n%s", cmd.Args, err, stderr)
	}
	got, err := readSummary(stderr.Bytes())
	return l, got.Counting.LongestStall, err
}

// count returns a command that counts the branches of a server, and its standard error.
func (b *bench) count(ctx context.Context, s *server, seconds int) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, b.fulgur, "bolt", "--branches", b.branches, "--max-overhead", "5%", "--stats", "json",
		"-p", strconv.Itoa(s.pid()), "-o", filepath.Join(b.dir, "cost.preagg"), strconv.Itoa(seconds))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	return cmd, &stderr
}

// settling is the time that fulgur gets to find the jumps, in seconds, and workPairs the number of
// pairs of seconds after that.
const settling, workPairs = 10, 60

// work measures the work of a busy server by turns while fulgur counts, and while SIGTSTP has stopped
// fulgur, so that there are no windows. The periods are short because the speed of the machine varies.
func (b *bench) work(ctx context.Context, s *server, load string, c *cost) (err error) {
	var stopped atomic.Bool
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !stopped.Load() {
			err = s.do(load)
		}
		done <- err
	}()
	defer func() {
		stopped.Store(true)
		err = errors.Join(err, <-done)
	}()
	cmd, stderr := b.count(ctx, s, 2*settling+2*workPairs)
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(unix.SIGCONT) // so that it can end
		if waitErr := errors.Join(cmd.Process.Signal(unix.SIGINT), cmd.Wait()); waitErr != nil && err == nil {
			err = fmt.Errorf("%v: %w\n%s", cmd.Args, waitErr, stderr)
		}
		if err == nil {
			c.busy, err = readSummary(stderr.Bytes())
		}
	}()
	time.Sleep(settling * time.Second)
	for i := range 2 * workPairs {
		counted := 1 - i%2
		if i%(workPairs/6) == 0 {
			progress("redis: work: %d of %d s", i, 2*workPairs)
		}
		signal := []os.Signal{unix.SIGTSTP, unix.SIGCONT}[counted]
		if err := cmd.Process.Signal(signal); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // until it has stopped after a window
		rate, err := s.rate(ctx, time.Second)
		if err != nil {
			return err
		}
		c.work[counted] = append(c.work[counted], rate)
	}
	return nil
}

// rate returns the number of commands per second that the server processes for some time.
func (s *server) rate(ctx context.Context, during time.Duration) (float64, error) {
	before, err := s.commands()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(during):
	}
	after, err := s.commands()
	return (after - before) / time.Since(begin).Seconds(), err
}

// readCommands reads the commands of a load.
func readCommands(path string) (commands [][]byte, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for command := range bytes.SplitSeq(text, []byte("\r\n*")) {
		command = append(append([]byte("*"), bytes.TrimPrefix(command, []byte("*"))...), "\r\n"...)
		if !bytes.Contains(command, []byte("\r\nQUIT\r\n")) {
			commands = append(commands, command)
		}
	}
	return commands, nil
}

// requests sends commands at a fixed rate until the end, and measures the time from when a command
// should have been sent until its reply.
func (s *server) requests(commands [][]byte, end <-chan struct{}) (l latencies, err error) {
	c, err := net.Dial("unix", s.socket())
	if err != nil {
		return l, err
	}
	defer c.Close()
	replies := bufio.NewReader(c)
	var took []time.Duration
	start := time.Now()
	for i := 0; ; i++ {
		due := start.Add(time.Duration(i) * time.Second / requestsPerSecond)
		time.Sleep(time.Until(due))
		select {
		case <-end:
			slices.Sort(took)
			at := func(share float64) time.Duration { return took[int(share*float64(len(took)-1))] }
			return latencies{at(0.5), at(0.99), at(0.999), at(1)}, nil
		default:
		}
		if _, err := c.Write(commands[i%len(commands)]); err != nil {
			return l, err
		}
		if err := skipReply(replies); err != nil {
			return l, err
		}
		took = append(took, time.Since(due))
	}
}

// skipReply reads a reply: a line, a string of a given length, or an array of these.
func skipReply(r *bufio.Reader) error {
	for left := 1; left > 0; left-- {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // only of lengths
		switch {
		case line[0] == '$' && n >= 0:
			if _, err := r.Discard(n + len("\r\n")); err != nil {
				return err
			}
		case line[0] == '*':
			left += max(n, 0)
		}
	}
	return nil
}

// commands returns the number of commands that the server has processed.
func (s *server) commands() (n float64, err error) {
	c, err := net.Dial("unix", s.socket())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "INFO stats\r\nQUIT\r\n"); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "total_commands_processed:")
	number, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(number, 64)
}

// write writes c as Markdown.
func (c cost) write(w io.Writer, machine string, o options) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	fmt.Fprintf(out, "%s; --branches %s. Medians (minimum – maximum).\n\n", machine, o.branches)
	fmt.Fprintf(out, "| redis, %d pairs of %d s at %d requests a second | alone | counted |\n", o.rounds, o.seconds, requestsPerSecond)
	fmt.Fprintln(out, "|---|---:|---:|")
	for _, row := range []struct {
		name string
		of   func(latencies) time.Duration
	}{
		{"median latency", func(l latencies) time.Duration { return l.p50 }},
		{"99 %", func(l latencies) time.Duration { return l.p99 }},
		{"99.9 %", func(l latencies) time.Duration { return l.p999 }},
		{"longest", func(l latencies) time.Duration { return l.max }},
	} {
		fmt.Fprintf(out, "| %s, ms |", row.name)
		for _, all := range c.latency {
			var ms []float64
			for _, l := range all {
				ms = append(ms, 1e3*row.of(l).Seconds())
			}
			fmt.Fprintf(out, " %s |", spread("%.3f", ms))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "\nLongest stall that fulgur reports: %s s.\n", spread("%.4f", c.stalls))
	n := len(c.work[0])
	loss := func(rounds []int) float64 {
		var all []float64
		for _, r := range rounds {
			all = append(all, c.work[1][r]/c.work[0][r]-1)
		}
		return median(all)
	}
	between := bootstrap(n, loss)
	fmt.Fprintf(out, "Busy, in %d pairs of 1 s, alone %s and counted %s commands a second: a change of %s (95 %% interval %s to %s).\n",
		n, spread("%.0f", c.work[0]), spread("%.0f", c.work[1]), percent(loss(allRounds(n))), number(between.low), number(between.high))
	fmt.Fprintf(out, "fulgur reports a loss of %.2f %% of the progress in all this time, for %d outcomes.\n", 100*c.busy.Counting.Overhead, c.busy.Counting.Outcomes)
	return out.Flush()
}

// spread describes values by their median, minimum and maximum.
func spread(format string, values []float64) string {
	return fmt.Sprintf(format+" ("+format+" – "+format+")", median(values), slices.Min(values), slices.Max(values))
}
