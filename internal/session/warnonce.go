package session

import "fmt"

// maxTold is how many warnings are told at most: a machine of broken files has as
// many as files.
const maxTold = 10

// warnOnce says each warning once, however often there is reason for it, until there
// are many.
type warnOnce struct {
	options *Options
	told    map[string]bool
}

func (t *warnOnce) tell(lines []string) {
	if t.told == nil {
		t.told = map[string]bool{}
	}
	for _, line := range lines {
		if t.options.Quiet || t.told[line] || len(t.told) > maxTold {
			continue
		}
		t.told[line] = true
		if len(t.told) > maxTold {
			line = "more warnings like these are not shown"
		}
		fmt.Fprintln(t.options.Stderr, "fulgur:", line)
	}
}
