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
)

// requestsPerSecond is the rate of the requests whose latency is measured. redis is mostly idle.
const requestsPerSecond = 5000

// cost is the cost of counting for redis, measured in pairs of periods: in one of them redis runs alone,
// and in the other one fulgur counts its branches.
type cost struct {
	latency  [2][]latencies // alone, counted
	work     [2][]float64   // commands per second while redis is busy; likewise
	reported []float64      // loss of progress that fulgur reports for the busy periods
	stalls   []float64      // longest stalls that fulgur reports, in seconds
	outcomes []float64
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
		progress("redis: cost: round %d of %d", round+1, b.rounds)
		for i := range 2 {
			counted := (round + i) % 2
			s, err := startServer(ctx, p.binary)
			if err != nil {
				return c, err
			}
			server := s.(*server)
			err = errors.Join(
				b.period(ctx, server, counted == 1, &c, func(end <-chan struct{}) error {
					l, err := server.requests(commands, end)
					c.latency[counted] = append(c.latency[counted], l)
					return err
				}),
				b.period(ctx, server, counted == 1, &c, func(end <-chan struct{}) error {
					rate, err := server.saturate(p.training, end)
					c.work[counted] = append(c.work[counted], rate)
					return err
				}))
			server.kill()
			if err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// period runs load until the period ends, while fulgur counts the branches of the server if counted is
// set.
func (b *bench) period(ctx context.Context, s *server, counted bool, c *cost, load func(end <-chan struct{}) error) error {
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- load(end) }()
	if !counted {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(b.seconds) * time.Second):
		}
		close(end)
		return errors.Join(ctx.Err(), <-ended)
	}
	cmd := exec.CommandContext(ctx, b.fulgur, "bolt", "--branches", b.branches, "--max-overhead", "5%", "--stats", "json",
		"-p", strconv.Itoa(s.pid()), "-o", filepath.Join(b.dir, "cost.preagg"), strconv.Itoa(b.seconds))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	close(end)
	if err := errors.Join(err, <-ended); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, &stderr)
	}
	got, err := readSummary(stderr.Bytes())
	c.reported = append(c.reported, got.Counting.Overhead)
	c.stalls = append(c.stalls, got.Counting.LongestStall)
	c.outcomes = append(c.outcomes, float64(got.Counting.Outcomes))
	return err
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

// saturate keeps the server busy until the end, and returns the commands per second.
func (s *server) saturate(load string, end <-chan struct{}) (rate float64, err error) {
	var stopped atomic.Bool
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !stopped.Load() {
			err = s.do(load)
		}
		done <- err
	}()
	time.Sleep(time.Second) // meanwhile, fulgur reads the program
	before, err := s.commands()
	start := time.Now()
	if err == nil {
		<-end
		var after float64
		after, err = s.commands()
		rate = (after - before) / time.Since(start).Seconds()
	}
	stopped.Store(true)
	return rate, errors.Join(err, <-done)
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
func (c cost) write(w io.Writer, machine string, seconds int) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	n := len(c.work[0])
	fmt.Fprintf(out, "%s; %d pairs of %d s. Medians (minimum – maximum).\n\n", machine, n, seconds)
	fmt.Fprintln(out, "| redis | alone | counted |")
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
	fmt.Fprintf(out, "| commands per second | %s | %s |\n\n", spread("%.0f", c.work[0]), spread("%.0f", c.work[1]))
	loss := func(rounds []int) float64 {
		var all []float64
		for _, r := range rounds {
			all = append(all, 1-c.work[1][r]/c.work[0][r])
		}
		return median(all)
	}
	between := bootstrap(n, loss)
	fmt.Fprintf(out, "Busy, it loses %s of its commands (95 %% interval %s to %s); fulgur reports %s of its progress.\n",
		percent(loss(allRounds(n))), number(between.low), number(between.high), spread("%.3f", c.reported))
	fmt.Fprintf(out, "Longest stall that fulgur reports: %s s; outcomes: %s.\n", spread("%.4f", c.stalls), spread("%.0f", c.outcomes))
	return out.Flush()
}

// spread describes values by their median, minimum and maximum.
func spread(format string, values []float64) string {
	return fmt.Sprintf(format+" ("+format+" – "+format+")", median(values), slices.Min(values), slices.Max(values))
}
