package session

import "fmt"

// mostTold bounds what a teller remembers.
const mostTold = 1000

// teller says each warning once, however often there is reason for it.
type teller struct {
	options *Options
	told    map[string]bool
}

func (t *teller) tell(lines []string) {
	if len(t.told) > mostTold || t.told == nil {
		t.told = map[string]bool{}
	}
	for _, line := range lines {
		if !t.told[line] && !t.options.Quiet {
			fmt.Fprintln(t.options.Stderr, "fulgur:", line)
		}
		t.told[line] = true
	}
}
