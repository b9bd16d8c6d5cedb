package main

import "testing"

func TestParseScenario(t *testing.T) {
	for _, want := range append(allScenarios, scenario{OnePID: true, Frequency: 1}) {
		got, err := parseScenario(want.String())
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v", want, got, err)
		}
	}
	for _, name := range []string{"", "system", "system-", "system-0", "system--1", "pid-99x", "Pid-99", "cpu-99", "churn-", "churn-0"} {
		if got, err := parseScenario(name); err == nil {
			t.Errorf("%q: got %v, want an error", name, got)
		}
	}
}
