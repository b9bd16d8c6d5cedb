package main

import "fmt"

// scenario is what the tools are asked to sample.
type scenario struct {
	// OnePID: one process, which is the machine's whole load, so that all
	// tools find it as busy. Otherwise the whole system.
	OnePID    bool
	Frequency int // samples a second on each CPU
}

// allScenarios are those of the table: the rate of the tutorials, and one at
// which every loss shows.
var allScenarios = []scenario{
	{OnePID: false, Frequency: 99},
	{OnePID: false, Frequency: 4999},
	{OnePID: true, Frequency: 99},
	{OnePID: true, Frequency: 4999},
}

// String returns the scenario's name on the command line.
func (s scenario) String() string {
	if s.OnePID {
		return fmt.Sprintf("pid-%d", s.Frequency)
	}
	return fmt.Sprintf("system-%d", s.Frequency)
}

// title returns the scenario's name in the table.
func (s scenario) title() string {
	if s.OnePID {
		return fmt.Sprintf("one process, %d Hz", s.Frequency)
	}
	return fmt.Sprintf("system, %d Hz", s.Frequency)
}

// parseScenario reads a name as String makes it, with any frequency.
func parseScenario(name string) (scenario, error) {
	var s scenario
	for _, onePID := range []bool{false, true} {
		format := "system-%d"
		if onePID {
			format = "pid-%d"
		}
		if _, err := fmt.Sscanf(name, format, &s.Frequency); err != nil {
			continue
		}
		s.OnePID = onePID
		if s.Frequency > 0 && s.String() == name {
			return s, nil
		}
	}
	return scenario{}, fmt.Errorf("scenario %q is not system-HZ or pid-HZ", name)
}
