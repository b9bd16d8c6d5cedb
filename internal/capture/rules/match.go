package rules

import (
	"path"
	"slices"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/containers"
)

// set is a set of rules: bit i is rule i of [Rules.all].
type set uint64

// all returns the rules that include, then those that exclude, then those with rates.
func (r Rules) all() []Rule {
	all := slices.Concat(r.Include, r.Exclude)
	for _, s := range r.Slower {
		all = append(all, s.Rule)
	}
	return all
}

// include and exclude return the rules that include, and those that exclude.
func (r Rules) include() set { return 1<<len(r.Include) - 1 }
func (r Rules) exclude() set { return (1<<len(r.Exclude) - 1) << len(r.Include) }

// slow returns the rules with rates.
func (r Rules) slow() set { return (1<<len(r.Slower) - 1) << (len(r.Include) + len(r.Exclude)) }

// slower returns each of the rules with rates.
func (r Rules) slower() (each [maxSlower]uint64) {
	for i := range r.Slower {
		each[i] = 1 << (len(r.Include) + len(r.Exclude) + i)
	}
	return each
}

// oneIn has, for each rule with a rate, the number of samples of which one is taken.
type oneIn = [bpf.OnCPURuleLimitRULES_SLOWER]uint32

// oneIn returns the divisors of a rate of samples in Hz, 0 if it is not known.
func (r Rules) oneIn(rate uint64) (each oneIn) {
	for i, s := range r.Slower {
		each[i] = uint32(max((rate+s.Rate/2)/s.Rate, 1))
	}
	return each
}

// leaves reports whether a process is left out that matches these rules, and no others.
func (r Rules) leaves(matched set) bool {
	return matched&r.exclude() != 0 || len(r.Include) > 0 && matched&r.include() == 0
}

// kinds of properties; the kernel side has a table for each.
type kind uint8

const (
	kindUser kind = iota
	kindGroup
	kindProgram
)

// kind returns the kind of what t tests.
func (t term) kind() kind {
	switch t.property {
	case propertyUser:
		return kindUser
	case propertyProgram:
		return kindProgram
	}
	return kindGroup
}

// matching returns the rules whose terms of a kind all match. A rule without such terms matches.
func (r Rules) matching(k kind, matches func(term) bool) (matched set) {
	for i, rule := range r.all() {
		if !slices.ContainsFunc(rule.terms, func(t term) bool { return t.kind() == k && !matches(t) }) {
			matched |= 1 << i
		}
	}
	return matched
}

// tests reports whether any rule has a term of a kind.
func (r Rules) tests(k kind) bool { return r.any(func(t term) bool { return t.kind() == k }) }

// testContainers reports whether any rule depends on the container of a process.
func (r Rules) testContainers() bool {
	return r.any(func(t term) bool {
		switch t.property {
		case propertyContainer, propertyLabel, propertyNamespace, propertyPod:
			return true
		}
		return false
	})
}

// any reports whether f returns true for a term of any rule.
func (r Rules) any(f func(term) bool) bool {
	return slices.ContainsFunc(r.all(), func(rule Rule) bool { return slices.ContainsFunc(rule.terms, f) })
}

// unknown returns the rules that match whatever the property of a kind is.
func (r Rules) unknown(k kind) set { return r.matching(k, func(term) bool { return false }) }

// ofUser returns the rules that match a user.
func (r Rules) ofUser(id uint32) set {
	return r.matching(kindUser, func(t term) bool { return t.user == id })
}

// users returns the users that rules name.
func (r Rules) users() (ids []uint32) {
	for _, rule := range r.all() {
		for _, t := range rule.terms {
			if t.kind() == kindUser {
				ids = append(ids, t.user)
			}
		}
	}
	return ids
}

// ofProgram returns the rules that match a program, by its path.
func (r Rules) ofProgram(file string) set {
	return r.matching(kindProgram, func(t term) bool {
		if !strings.Contains(t.pattern, "/") {
			return match(t.pattern, path.Base(file))
		}
		return match(t.pattern, file)
	})
}

// ofGroup returns the rules that match the place of a process.
func (r Rules) ofGroup(p containers.Place) set {
	return r.matching(kindGroup, func(t term) bool { return t.matchesPlace(p) })
}

// slash hides slashes from patterns whose * stands for them, too. It is in no name.
var slash = strings.NewReplacer("/", "\x00")

func (t term) matchesPlace(p containers.Place) bool {
	o := p.Owner
	switch t.property {
	case propertyCgroup:
		return slices.ContainsFunc(p.Paths, t.matchesCgroup)
	case propertyContainer:
		return o.ContainerID != "" && (match(t.pattern, o.Container) || match(t.pattern, o.ContainerID))
	case propertyLabel:
		value, ok := p.Labels[t.label]
		return ok && match(slash.Replace(t.pattern), slash.Replace(value))
	case propertyNamespace:
		return o.Namespace != "" && match(t.pattern, o.Namespace)
	case propertyPod:
		name := o.Pod
		if strings.Contains(t.pattern, "/") {
			name = o.PodName()
		}
		return o.Pod != "" && match(t.pattern, name)
	case propertyUnit:
		return o.Unit != "" && match(t.pattern, o.Unit)
	}
	return false
}

// matchesCgroup reports whether a pattern matches a cgroup or one above it.
func (t term) matchesCgroup(at string) bool {
	for ; !match(t.pattern, at); at = path.Dir(at) {
		if at == "/" || at == "." {
			return false
		}
	}
	return true
}
