package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/capture/events"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/offline"
	"fulgur/internal/profile/output"
	"fulgur/internal/profile/report"
	"fulgur/internal/ui/clidoc"
)

// completeCommand prints the candidates for the last word of a command line, for the scripts of completionCommand.
type completeCommand struct {
	Words []string `kong:"-"` // the arguments after "--"
}

// completeWithin is how long a shell waits for candidates: to wait longer is worse than to get none.
const completeWithin = 2 * time.Second

// launch implements launcher.
func (c *completeCommand) launch(argv []string) { c.Words = argv }

// run prints nothing else, not even errors: they would appear in the line that the user types.
func (c *completeCommand) run(ctx context.Context, env environment) (int, error) {
	if len(c.Words) == 0 {
		return exitFailed, nil // no shell asks this
	}
	done := make(chan string, 1)
	go func() {
		defer close(done)
		if text, err := completions(c.Words); err == nil {
			done <- text
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	select {
	case text := <-done:
		if _, err := io.WriteString(env.stdout, text); err == nil && text != "" {
			return 0, nil
		}
	case <-ctx.Done():
	}
	return exitFailed, nil
}

// completions returns the candidates for the last of words, as clidoc.Complete writes them.
func completions(words []string) (string, error) {
	words = afterRemote(words)
	if len(words) == 0 {
		return "", nil
	}
	var list []subcommand
	if len(words) > 1 {
		list = chosen(words)
	}
	parser, err := newParser(list, io.Discard, io.Discard, func() {})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = clidoc.Complete(&text, parser.Model, words, clidoc.Sources{
		clidoc.CommandName: commandNames, "event": eventNames, "process": processIDs,
		"format": oneOf(output.Names()), "conversion": oneOf(conversionFormats()), "comparison": oneOf(offline.ComparisonFormats()),
		"question": oneOf(report.QuestionNames()),
	})
	return text.String(), err
}

// commandNames returns all commands.
func commandNames(beginning string) (list []clidoc.Candidate) {
	if strings.HasPrefix(beginning, "-") {
		list = append(list, clidoc.Candidate{Word: onFlag, About: "Run a command that measures on another host"})
	}
	for _, s := range subcommands {
		if s.group != hiddenGroup {
			list = append(list, clidoc.Candidate{Word: s.name, About: strings.TrimSuffix(s.help, ".")})
		}
	}
	return list
}

// oneOf returns the source of a list of words.
func oneOf(words []string) func(string) []clidoc.Candidate {
	return func(string) (list []clidoc.Candidate) {
		for _, word := range words {
			list = append(list, clidoc.Candidate{Word: word})
		}
		return list
	}
}

// eventNames returns the events whose names begin with beginning.
func eventNames(beginning string) (list []clidoc.Candidate) {
	if events.CompletesFile(beginning) && capability.Drop() != nil { // the user may not be allowed to see the file
		return nil
	}
	for _, name := range events.Complete(beginning) {
		list = append(list, clidoc.Candidate{Word: name})
	}
	return list
}

// processIDs returns the processes whose IDs begin with beginning, with their names.
func processIDs(beginning string) (list []clidoc.Candidate) {
	if capability.Drop() != nil { // the user may not be allowed to see all processes
		return nil
	}
	pids, err := procfs.Processes()
	if err != nil {
		return nil
	}
	for _, pid := range pids {
		id := strconv.Itoa(pid)
		if !strings.HasPrefix(id, beginning) {
			continue
		}
		comm, err := procfs.Process(pid).Comm()
		if err != nil {
			continue // it has ended
		}
		list = append(list, clidoc.Candidate{Word: id, About: plain.Terminal(comm)})
	}
	return list
}
