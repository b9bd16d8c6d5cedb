package session

import "fmt"

// mostTold is how many warnings are told at most: a machine of broken files has as
// many as files.
const mostTold = 10

// teller says each warning once, however often there is reason for it, until there
// are many.
type teller struct {
	options *Options
	told    map[string]bool
}

func (t *teller) tell(lines []string) {
	if t.told == nil {
		t.told = map[string]bool{}
	}
	for _, line := range lines {
		if t.options.Quiet || t.told[line] || len(t.told) > mostTold {
			continue
		}
		t.told[line] = true
		if len(t.told) > mostTold {
			line = "further warnings like these are left out"
		}
		fmt.Fprintln(t.options.Stderr, "fulgur:", line)
	}
}
