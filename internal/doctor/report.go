package doctor

import "slices"

// Works is the degree to which a command works.
type Works string

// Values of [Works].
const (
	Yes    Works = "yes"
	Partly Works = "partly" // with losses
	No     Works = "no"
)

// Report holds the results of all checks.
type Report struct {
	// Version is fulgur's version.
	Version  string    `json:"fulgur"`
	Release  string    `json:"kernel"`
	Machine  string    `json:"machine"`
	Checks   []Result  `json:"checks"`
	Commands []Verdict `json:"commands"`
}

// Result is the result of one check.
type Result struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	Title string `json:"title"`
	// Value describes the machine in a word or two.
	Value string `json:"value"`
	// Problem is nil if nothing is wrong.
	Problem *Problem `json:"problem,omitempty"`
}

// Verdict is the result for a command on the machine.
type Verdict struct {
	Command Command `json:"command"`
	Works   Works   `json:"works"`
	// Because holds the IDs of the checks whose problems stop the command or cost it
	// something.
	Because []string `json:"because,omitempty"`
}

// Examine applies all checks. version is fulgur's.
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

// verdict returns how well c works. If something stops it, its losses do not matter. Losses of all
// kinds of events stop it, too.
func (r *Report) verdict(c Command) Verdict {
	var stops, costs, events []string
	kinds := 0
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
			if slices.Contains(eventKinds, result.Title) {
				events = add(events, result.Problem.origins())
				kinds++
			}
		}
	}
	switch {
	case len(stops) > 0:
		return Verdict{Command: c, Works: No, Because: stops}
	case kinds == len(eventKinds):
		return Verdict{Command: c, Works: No, Because: events}
	case len(costs) > 0:
		return Verdict{Command: c, Works: Partly, Because: costs}
	}
	return Verdict{Command: c, Works: Yes}
}

// add appends the strings of more that list lacks.
func add(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// Works returns how well c works.
func (r *Report) Works(c Command) Works { return r.verdict(c).Works }
