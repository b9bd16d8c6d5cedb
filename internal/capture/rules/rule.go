// Package rules decides which processes a measurement includes and excludes: by user, cgroup,
// systemd unit, container, pod and program. The kernel side judges each sample, see bpf/rules.h;
// [Judge] keeps its tables up to date.
package rules

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os/user"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/message/plain"
)

// Rules select processes. The zero value selects all.
type Rules struct {
	// Include and Exclude select the processes that match any rule of Include, or all if there is
	// none, but none that match a rule of Exclude.
	Include, Exclude []Rule
	// Slower lowers the rate of samples for the processes that a rule matches, the first that does.
	Slower []Slower
	// MinAge leaves out processes until they are this old.
	MinAge time.Duration
}

// Slower is a rule with a lower rate.
type Slower struct {
	Rule
	// Rate is in samples per second and CPU.
	Rate uint64
}

// Any reports whether there is anything to select by.
func (r Rules) Any() bool { return len(r.all()) > 0 || r.MinAge > 0 }

// The numbers of rules that the kernel side has room for, in all and with rates.
const (
	maxRules  = 64
	maxSlower = len(oneIn{})
)

// Check returns an error if there are too many rules.
func (r Rules) Check() error {
	if n := len(r.all()); n > maxRules {
		return fmt.Errorf("%d rules: %d are possible; patterns can stand for several names, as in pod=web-*", n, maxRules)
	}
	if n := len(r.Slower); n > maxSlower {
		return fmt.Errorf("%d rules with rates: %d are possible", n, maxSlower)
	}
	return nil
}

// Rule matches the processes that all of its terms match.
type Rule struct {
	text  string
	terms []term
}

// String returns the text of the rule.
func (r Rule) String() string { return r.text }

// UnmarshalText implements [encoding.TextUnmarshaler] by [Parse].
func (r *Rule) UnmarshalText(text []byte) (err error) {
	*r, err = Parse(string(text))
	return err
}

// UnmarshalText implements [encoding.TextUnmarshaler] by [ParseSlower].
func (s *Slower) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSlower(string(text))
	return err
}

// term tests a property of processes.
type term struct {
	property property
	label    string // the key, for propertyLabel
	pattern  string
	user     uint32 // for propertyUser
}

// property is what a term tests.
type property uint8

const (
	propertyCgroup property = iota
	propertyContainer
	propertyLabel
	propertyNamespace
	propertyPod
	propertyProgram
	propertyUnit
	propertyUser
)

// properties holds the names of properties, in the order of the constants.
var properties = [...]string{"cgroup", "container", labelPrefix + "KEY", "namespace", "pod", "program", "unit", "user"}

// labelPrefix begins the name of a label's property.
const labelPrefix = "label:"

// maxText limits the length of a rule.
const maxText = 4096

// Parse parses a rule: terms of the form PROPERTY=PATTERN, separated by commas, all of which must
// match. In a pattern, * stands for any characters but slashes, ** for any characters, ? for any one
// but a slash, and \ takes the character after it literally. A short rule such as pod=web-* has one
// term.
func Parse(text string) (Rule, error) {
	r := Rule{text: text}
	if len(text) > maxText {
		return r, fmt.Errorf("a rule of %d bytes is longer than the maximum of %d", len(text), maxText)
	}
	for _, part := range splitTerms(text) {
		t, err := parseTerm(strings.TrimSpace(part))
		if err != nil {
			return r, err
		}
		r.terms = append(r.terms, t)
	}
	return r, nil
}

// ParseSlower parses a rule with a rate in Hz before it, as in "5:namespace=batch".
func ParseSlower(text string) (s Slower, err error) {
	rate, rule, ok := strings.Cut(text, ":")
	s.Rate, err = strconv.ParseUint(strings.TrimSpace(rate), 10, 32)
	if !ok || err != nil || s.Rate == 0 {
		return s, fmt.Errorf("%s is not a rate with a rule: give samples per second, as in 5:namespace=batch", strconv.Quote(text))
	}
	s.Rule, err = Parse(rule)
	return s, err
}

// splitTerms splits the text of a rule at its commas, except for those after a backslash.
func splitTerms(text string) (parts []string) {
	from := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case ',':
			parts, from = append(parts, text[from:i]), i+1
		}
	}
	return append(parts, text[from:])
}

func parseTerm(text string) (t term, err error) {
	name, pattern, ok := strings.Cut(text, "=")
	name, pattern = strings.TrimSpace(name), strings.TrimSpace(pattern)
	if key, isLabel := strings.CutPrefix(name, labelPrefix); isLabel {
		name, t.label = labelPrefix+"KEY", key
		if key == "" {
			return t, errors.New("the key of the label is missing, as in label:app=api")
		}
	}
	at := -1
	for i, known := range properties {
		if name == known {
			at = i
		}
	}
	if !ok || at < 0 {
		return t, fmt.Errorf("%s is not a rule: give PROPERTY=PATTERN with %s, as in unit=nginx.service", strconv.Quote(text), plain.Or(properties[:]))
	}
	t.property, t.pattern = property(at), pattern
	if pattern == "" {
		return t, fmt.Errorf("%s is followed by nothing: give a name or a pattern, such as *", strconv.Quote(text))
	}
	if slashes := len(pattern) - len(strings.TrimRight(pattern, `\`)); slashes%2 == 1 {
		return t, fmt.Errorf("%s ends in a backslash, which takes the character after it literally", strconv.Quote(text))
	}
	err = t.complete()
	return t, err
}

// complete checks the pattern of a term, and makes short forms long.
func (t *term) complete() (err error) {
	switch t.property {
	case propertyUser:
		t.user, err = userID(t.pattern)
		return err
	case propertyUnit:
		return t.completeUnit()
	case propertyCgroup:
		return t.completeCgroup()
	case propertyProgram:
		if strings.Contains(t.pattern, "/") && !strings.HasPrefix(t.pattern, "/") && !strings.HasPrefix(t.pattern, "**") {
			return fmt.Errorf("program=%s: give an absolute path, or a name without directories", t.pattern)
		}
	case propertyPod:
		if strings.Count(t.pattern, "/") > 1 {
			return fmt.Errorf("pod=%s: give the name of a pod, or NAMESPACE/NAME", t.pattern)
		}
	}
	return nil
}

// completeUnit adds the suffix of services, as systemctl(1) does.
func (t *term) completeUnit() error {
	switch name := t.pattern[strings.LastIndexByte(t.pattern, '/')+1:]; {
	case strings.HasSuffix(name, ".slice"):
		return fmt.Errorf("unit=%s: a slice has no processes of its own: give its cgroup, as in cgroup=/**/%s", t.pattern, name)
	case !strings.Contains(name, ".") && !isGlob(name):
		t.pattern += ".service"
	}
	return nil
}

// cgroupMount is the usual mount point of the hierarchies of cgroups.
const cgroupMount = "/sys/fs/cgroup"

func (t *term) completeCgroup() error {
	// A cgroup includes those below it.
	if above := strings.TrimRight(strings.TrimSuffix(t.pattern, "/**"), "/"); above != "" || t.pattern[0] == '/' {
		t.pattern = cmp.Or(above, "/")
	}
	if within, ok := strings.CutPrefix(t.pattern, cgroupMount); ok {
		return fmt.Errorf("cgroup=%s: give the path in the hierarchy, as in /proc/PID/cgroup: cgroup=%s", t.pattern, "/"+strings.TrimPrefix(within, "/"))
	}
	if !strings.HasPrefix(t.pattern, "/") && !strings.HasPrefix(t.pattern, "**") {
		return fmt.Errorf("cgroup=%s: give an absolute path in the hierarchy, as in /proc/PID/cgroup", t.pattern)
	}
	return nil
}

// userID returns the ID of a user, given by name or number.
func userID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n < math.MaxUint32 { // that is no user
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("user=%s: no user of this name is in /etc/passwd: give the number", name)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("user=%s: the number of the user is %s", name, strconv.Quote(u.Uid))
	}
	return uint32(n), nil
}
