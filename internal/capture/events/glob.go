package events

import (
	"slices"
	"strings"

	"fulgur/internal/message/plain"
)

// IsGlob reports whether a name has wildcards.
func IsGlob(name string) bool { return strings.ContainsAny(name, "*?") }

// Match reports whether name matches a pattern, in which * stands for any characters and
// ? for any one.
func Match(pattern, name string) bool {
	p, n := 0, 0
	star, resume := -1, 0 // the last * and where its match ends
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p, n = p+1, n+1
		case star >= 0:
			resume++
			p, n = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// nearestNames is the number of names that errors suggest.
const nearestNames = 3

// maxTypos is the maximum edit distance between a kind of event and a misspelling of it.
const maxTypos = 2

// nearest collects the names that are most similar to a wrong one.
type nearest struct {
	to    string
	part  string // the end of similar names in a similar group; "" for none
	best  []candidate
	tried int
}

// maxTried limits the names that are compared: a crafted file can have millions.
const maxTried = 1 << 20

type candidate struct {
	name     string
	distance int
}

// add considers a name.
func (n *nearest) add(name string) { n.addAs(name, name) }

// dropOthers keeps only names that equal the wrong one, as compared. It returns false if there
// are none.
func (n *nearest) dropOthers() bool {
	isOther := func(c candidate) bool { return c.distance > 0 }
	if len(n.best) == 0 || isOther(n.best[0]) {
		return false
	}
	n.best = slices.DeleteFunc(n.best, isOther)
	return true
}

// addAs considers a name, of which it compares a part.
func (n *nearest) addAs(name, compared string) {
	if n.tried++; n.tried > maxTried {
		return
	}
	limit := max(2, len(n.to)/3)
	if len(n.best) == nearestNames {
		limit = n.best[len(n.best)-1].distance - 1
	}
	d := distance(n.to, compared, limit)
	// A name that contains it counts like a name with one different letter.
	if len(n.to) >= 4 && strings.Contains(compared, n.to) {
		d = min(d, 1)
	}
	if len(n.part) >= 4 && strings.HasSuffix(name, n.part) && distance(group(n.to), group(name), maxTypos) <= maxTypos {
		d = min(d, 1)
	}
	if d > limit {
		return
	}
	if slices.ContainsFunc(n.best, func(c candidate) bool { return c.name == name }) {
		return
	}
	n.best = append(n.best, candidate{name, d})
	slices.SortStableFunc(n.best, func(a, b candidate) int { return a.distance - b.distance })
	n.best = n.best[:min(len(n.best), nearestNames)]
}

// group returns the part of an event's name before the colon.
func group(name string) string {
	before, _, _ := strings.Cut(name, ":")
	return before
}

// String returns "; did you mean a, b or c?", or "" if no name is similar.
func (n *nearest) String() string {
	var names []string
	for _, c := range n.best {
		names = append(names, c.name)
	}
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + plain.Or(names) + "?"
}

// maxCompared is the maximum length of names to compare: the time is quadratic.
const maxCompared = 128

// distance returns the Levenshtein distance of two names, or more than limit if it is
// above limit.
func distance(a, b string, limit int) int {
	if len(a) > maxCompared || len(b) > maxCompared || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var rows [2][maxCompared + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := range len(a) {
		from, to := &rows[i%2], &rows[(i+1)%2]
		to[0] = i + 1
		least := to[0]
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			to[j+1] = min(from[j]+change, from[j+1]+1, to[j]+1)
			least = min(least, to[j+1])
		}
		if least > limit {
			return limit + 1
		}
	}
	return rows[len(a)%2][len(b)]
}
