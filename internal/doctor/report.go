package doctor

import "slices"

// Works says how well a command works.
type Works string

// How well a command works.
const (
	Yes    Works = "yes"
	Partly Works = "partly" // some things are lost
	No     Works = "no"
)

// Report is what all checks found.
type Report struct {
	// Version is fulgur's.
	Version  string    `json:"fulgur"`
	Release  string    `json:"kernel"`
	Machine  string    `json:"machine"`
	Checks   []Result  `json:"checks"`
	Commands []Verdict `json:"commands"`
}

// Result is what one check found.
type Result struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	Title string `json:"title"`
	// Value is what was found, in a word or two.
	Value string `json:"value"`
	// Problem is what is wrong, nil if nothing is.
	Problem *Problem `json:"problem,omitempty"`
}

// Verdict is what follows for a command.
type Verdict struct {
	Command Command `json:"command"`
	Works   Works   `json:"works"`
	// Because are the IDs of the checks that found what stops it or costs it
	// something.
	Because []string `json:"because,omitempty"`
}

// Examine applies all checks, for the given version of fulgur.
func Examine(f *Facts, version string) Report {
	r := Report{Version: version, Release: f.Release, Machine: f.Machine}
	for _, c := range slices.Concat(grounds, trials) {
		r.Checks = append(r.Checks, Result{ID: c.id, Group: c.group, Title: c.title, Value: c.value(f), Problem: c.judge(f)})
	}
	for _, c := range Commands {
		r.Commands = append(r.Commands, r.verdict(c))
	}
	return r
}

// verdict says how well c works: where something stops it, what it would lose
// does not matter.
func (r *Report) verdict(c Command) Verdict {
	var stops, costs []string
	for _, result := range r.Checks {
		if result.Problem == nil {
			continue
		}
		stopped, cost := result.Problem.hits(c)
		switch {
		case stopped:
			stops = add(stops, result.Problem.origins())
		case cost:
			costs = add(costs, result.Problem.origins())
		}
	}
	switch {
	case len(stops) > 0:
		return Verdict{Command: c, Works: No, Because: stops}
	case len(costs) > 0:
		return Verdict{Command: c, Works: Partly, Because: costs}
	}
	return Verdict{Command: c, Works: Yes}
}

// add adds what is new to a list.
func add(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// Works says how well c works.
func (r *Report) Works(c Command) Works { return r.verdict(c).Works }
