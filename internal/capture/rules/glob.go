package rules

import "strings"

// isGlob reports whether a pattern has wildcards.
func isGlob(pattern string) bool { return strings.ContainsAny(pattern, `*?\`) }

// match reports whether name matches a pattern; see [Parse]. Its time grows with the product of both
// lengths.
func match(pattern, name string) bool {
	g := glob(pattern)
	// The states that the name so far can be in: indexes of what comes next in the pattern.
	now, next := make([]bool, len(g)+1), make([]bool, len(g)+1)
	g.reach(now, 0)
	for i := range len(name) {
		clear(next)
		for at, reached := range now[:len(g)] {
			if reached {
				g.step(next, at, name[i])
			}
		}
		now, next = next, now
	}
	return now[len(g)]
}

// glob is a pattern.
type glob string

// reach marks the states that are reached at an index of g, where asterisks can stand for nothing.
func (g glob) reach(states []bool, at int) {
	if states[at] {
		return
	}
	states[at] = true
	if n := g.stars(at); n > 0 {
		g.reach(states, at+n)
		// "**/" at the beginning of an element can stand for no element.
		if n > 1 && strings.HasPrefix(string(g[at+n:]), "/") && (at == 0 || g[at-1] == '/') {
			g.reach(states, at+n+1)
		}
	}
}

// step marks the states after another byte of the name.
func (g glob) step(states []bool, at int, b byte) {
	switch c := g[at]; {
	case c == '*':
		if b != '/' || g.stars(at) > 1 {
			g.reach(states, at)
		}
	case c == '?':
		if b != '/' {
			g.reach(states, at+1)
		}
	case c == '\\' && at+1 < len(g):
		if g[at+1] == b {
			g.reach(states, at+2)
		}
	case c == b:
		g.reach(states, at+1)
	}
}

// stars returns the number of asterisks from an index on.
func (g glob) stars(at int) (n int) {
	for at+n < len(g) && g[at+n] == '*' {
		n++
	}
	return n
}
