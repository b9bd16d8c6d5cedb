package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"fulgur/internal/capture/events"
	"fulgur/internal/linux/capability"
)

// completeEventCommand prints completions of the name of an event, for the scripts of
// completionCommand.
type completeEventCommand struct {
	Word string `arg:"" help:"= and the beginning of the name, which is not a flag then."`
}

// completeWithin is how long a shell waits for completions. Longer is worse than none.
const completeWithin = 2 * time.Second

// run prints nothing else, not even errors: it would appear in the line that the user types.
func (c *completeEventCommand) run(ctx context.Context, env environment) (int, error) {
	word := strings.TrimPrefix(c.Word, "=")
	if events.CompletesFile(word) {
		// The user may not be allowed to see the files that fulgur can read.
		if err := capability.Drop(); err != nil {
			return exitFailed, nil
		}
	}
	found := make(chan []string, 1)
	go func() { found <- events.Complete(word) }()
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	select {
	case list := <-found:
		for _, s := range list {
			if _, err := fmt.Fprintln(env.stdout, s); err != nil {
				return exitFailed, nil
			}
		}
		return 0, nil
	case <-ctx.Done():
		return exitFailed, nil
	}
}
