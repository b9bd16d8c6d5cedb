package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// comparison holds the results of the benchmark.
type comparison struct {
	Machine string
	Seconds int // of a run
	Growth  int // length of the long run, in seconds
	Notes   []string
	Results []result
	// Long is the run of LongScenario that shows whether fulgur's memory grows with time,
	// nil if there was none.
	Long         *cost
	LongScenario scenario
	failed       bool // a run of fulgur failed
}

// result holds the runs of a tool in a scenario.
type result struct {
	Scenario scenario
	Tool     string
	Runs     []cost
}

// measure runs all tools in all scenarios.
func (c *comparison) measure(ctx context.Context, o options, tools []tool, loads []load, dir string) error {
	for _, s := range o.scenarios {
		if err := c.measureScenario(ctx, o, s, tools, loads, dir); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// measureScenario runs all tools in one scenario, in turn in each round, so that a change
// in the machine's speed affects all of them.
func (c *comparison) measureScenario(ctx context.Context, o options, s scenario, tools []tool, loads []load, dir string) (err error) {
	started, err := start(ctx, s.of(loads))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, started.stop()) }()
	if s.OnePID {
		if err := started.favor(); err != nil {
			return err
		}
	}
	j := job{scenario: s, seconds: s.seconds(o.seconds), pid: started[0].Process.Pid, dir: dir}

	results := make([]result, len(tools))
	for i, t := range tools {
		results[i] = result{Scenario: s, Tool: t.name}
	}
	for round := range o.rounds {
		for i, t := range tools {
			if !t.takesPart(s, round) {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s, round %d of %d: %s\n", s, round+1, o.rounds, t.name)
			got, err := t.run(ctx, j)
			if err := ctx.Err(); err != nil {
				return err
			}
			if err != nil {
				c.noteFailure(t, s, err)
				continue
			}
			got.Round = round
			results[i].Runs = append(results[i].Runs, got)
		}
	}
	c.Results = append(c.Results, results...)
	if s == growthScenario(o) && tools[0].name == nameFulgur {
		c.measureGrowth(ctx, tools[0], j, o.growth)
	}
	return ctx.Err()
}

// growthScenario returns the scenario of the long run, which is the one with the most
// samples; none if there is no long run.
func growthScenario(o options) scenario {
	var most scenario
	if o.growth == 0 {
		return most
	}
	for _, s := range o.scenarios {
		if s.Frequency > most.Frequency {
			most = s
		}
	}
	return most
}

// measureGrowth makes the long run.
func (c *comparison) measureGrowth(ctx context.Context, t tool, j job, seconds int) {
	fmt.Fprintf(os.Stderr, "%s, %d s: %s\n", j.scenario, seconds, t.name)
	j.seconds = seconds
	long, err := t.run(ctx, j)
	if err != nil {
		c.noteFailure(t, j.scenario, err)
		return
	}
	c.Long, c.LongScenario = &long, j.scenario
}

// noteFailure notes that a run failed. The other runs continue.
func (c *comparison) noteFailure(t tool, s scenario, err error) {
	c.Notes = append(c.Notes, fmt.Sprintf("%s failed at %s: %v", t.name, s, err))
	c.failed = c.failed || t.name == nameFulgur
}

// failure returns an error if a run of fulgur failed. Failures of its peers are only
// noted.
func (c *comparison) failure() error {
	if c.failed {
		return errors.New("fulgur failed, see the notes")
	}
	return nil
}

// writeJSON writes everything to the file at path.
func (c *comparison) writeJSON(path string) error {
	out, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}
