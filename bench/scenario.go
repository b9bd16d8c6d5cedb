package main

import "fmt"

// scenario describes what the tools sample.
type scenario struct {
	// OnePID means one process, which is the only load of the machine, so that it is
	// equally busy under all tools. Otherwise the tools sample the whole system.
	OnePID bool
	// Churn means that the load is short processes, one after the other.
	Churn     bool
	Frequency int // samples per second on each CPU
}

// allScenarios are the scenarios of the table: the rate of agents, a rate common in
// tutorials, a rate that reveals every loss, and short processes at the rates of agents and
// of users.
var allScenarios = []scenario{
	{OnePID: false, Frequency: agentFrequency},
	{OnePID: false, Frequency: 99},
	{OnePID: false, Frequency: 4999},
	{OnePID: true, Frequency: 99},
	{OnePID: true, Frequency: 4999},
	{Churn: true, Frequency: 19},
	{Churn: true, Frequency: 99},
	{Churn: true, Frequency: 999},
}

// load returns the names of the scenario's load on the command line and in the table.
func (s scenario) load() (name, title string) {
	switch {
	case s.Churn:
		return "churn", "short processes"
	case s.OnePID:
		return "pid", "one process"
	}
	return "system", "system"
}

// String returns the scenario's name on the command line.
func (s scenario) String() string {
	name, _ := s.load()
	return fmt.Sprintf("%s-%d", name, s.Frequency)
}

// title returns the scenario's name in the table.
func (s scenario) title() string {
	_, title := s.load()
	return fmt.Sprintf("%s, %d Hz", title, s.Frequency)
}

// seconds returns how long a run samples. Short processes need longer runs, which are
// judged by their steady state.
func (s scenario) seconds(others int) int {
	if s.Churn {
		return 3 * others
	}
	return others
}

// parseScenario reads a name as String makes it, with any frequency.
func parseScenario(name string) (scenario, error) {
	for _, s := range []scenario{{}, {OnePID: true}, {Churn: true}} {
		load, _ := s.load()
		_, err := fmt.Sscanf(name, load+"-%d", &s.Frequency)
		if err == nil && s.Frequency > 0 && s.String() == name {
			return s, nil
		}
	}
	return scenario{}, fmt.Errorf("scenario %q is not system-HZ, pid-HZ or churn-HZ", name)
}
