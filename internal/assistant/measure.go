package assistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// measurement is a tool that measures.
type measurement struct {
	name, help string
	// format is the format of the file, and ending the end of its name.
	format, ending string
	sampled        bool // at a rate
}

// measurements are all tools that measure.
var measurements = []measurement{
	{"profile", "Sample CPU time by stack, and return the report.", "pprof", ".pb.gz", true},
	{"offcpu", "Measure the time that threads wait, by stack, and return the report.", "pprof", ".pb.gz", false},
	{"record", "Record CPU time, waits, disk requests and page faults on one timeline, and return the report.", "firefox", ".json.gz", true},
}

// target is the arguments of a measurement.
type target struct {
	File      string   `json:"file" jsonschema:"the name of the new file, without an ending"`
	Seconds   float64  `json:"seconds" jsonschema:"the duration"`
	PID       int      `json:"pid,omitempty" jsonschema:"the process to measure; by default the whole machine"`
	Children  bool     `json:"children,omitempty" jsonschema:"also measure the descendants of the process"`
	Frequency uint64   `json:"frequency,omitempty" jsonschema:"samples per second on each CPU, for profile and record; 99 by default"`
	Command   []string `json:"command,omitempty" jsonschema:"a program with its arguments to start and measure instead of a process, if the server allows it"`
}

// flags returns the command line of fulgur for a measurement into a file.
func (s *server) flags(m measurement, t target, path string) ([]string, error) {
	duration := time.Duration(t.Seconds * float64(time.Second))
	switch {
	case duration <= 0 || duration > s.MaxDuration:
		return nil, fmt.Errorf("seconds must be more than 0 and at most %v", s.MaxDuration.Seconds())
	case t.Frequency > s.MaxFrequency:
		return nil, fmt.Errorf("frequency must be at most %d", s.MaxFrequency)
	case t.Frequency > 0 && !m.sampled:
		return nil, fmt.Errorf("%s has no frequency: it measures each wait", m.name)
	case t.PID < 0:
		return nil, errors.New("pid must be positive")
	case len(t.Command) > 0 && !s.Commands:
		return nil, errors.New("this server starts no commands: it was started without --allow-commands")
	case len(t.Command) > 0 && t.PID > 0:
		return nil, errors.New("give a pid or a command, not both")
	}
	args := []string{m.name, "--format=" + m.format, "--output=" + path}
	if m.sampled {
		frequency := t.Frequency
		if frequency == 0 {
			frequency = min(99, s.MaxFrequency)
		}
		args = append(args, "--frequency="+strconv.FormatUint(frequency, 10))
	}
	if t.PID > 0 {
		args = append(args, "--pid="+strconv.Itoa(t.PID))
	}
	if t.Children {
		args = append(args, "--children")
	}
	args = append(args, duration.String())
	if len(t.Command) > 0 {
		args = append(append(args, "--"), t.Command...)
	}
	return args, nil
}

// measured is the result of a measurement.
type measured struct {
	File string `json:"file"`
	// Messages are the summary and the warnings of the run.
	Messages string          `json:"messages"`
	Report   json.RawMessage `json:"report"`
}

// measure returns the handler of a measurement. One runs at a time.
func (s *server) measure(m measurement) mcp.ToolHandlerFor[target, any] {
	return func(ctx context.Context, _ *mcp.CallToolRequest, t target) (*mcp.CallToolResult, any, error) {
		result := measured{File: strings.TrimSuffix(t.File, m.ending) + m.ending}
		path, err := s.newFile(result.File)
		if err != nil {
			return nil, nil, err
		}
		args, err := s.flags(m, t, path)
		if err != nil {
			return nil, nil, err
		}
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		// What a command prints is part of the messages.
		output, messages, err := s.fulgur(ctx, s.MaxDuration+endTime, nil, args...)
		if err != nil {
			return nil, nil, err
		}
		result.Messages = messages + output
		f, err := s.open(result.File)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		report, _, err := s.fulgur(ctx, answerTime, f, append(about{}.flags(), "-")...)
		if err != nil {
			return nil, nil, err
		}
		result.Report = json.RawMessage(report)
		encoded, err := json.Marshal(result)
		if err != nil {
			return nil, nil, err
		}
		return text(string(encoded))
	}
}
