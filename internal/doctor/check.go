package doctor

import (
	"slices"

	"fulgur/internal/linux/capability"
)

// Command is a way to use fulgur that has needs of its own.
type Command string

// The commands that measure.
const (
	Profile      Command = "profile"
	OffCPU       Command = "offcpu"
	BlockIO      Command = "blockio"
	Faults       Command = "faults"
	SoftIRQ      Command = "softirq"
	RunQ         Command = "runq"
	Record       Command = "record"
	Bolt         Command = "bolt"
	BoltStepping Command = "bolt --branches stepping"
)

// Commands are all of them, in the order in which they are shown.
var Commands = []Command{Profile, OffCPU, BlockIO, Faults, SoftIRQ, RunQ, Record, Bolt, BoltStepping}

// check looks at one thing of the machine.
type check struct {
	id    string // for programs that read the report; never changes
	group string
	title string
	// value says what was found, in a word or two.
	value func(*Facts) string
	// faults are what can be wrong, the worst first: the first that is there
	// counts.
	faults []fault
}

// fault is something that can be wrong.
type fault struct {
	when func(*Facts) bool
	// what says what is wrong. It can be followed by a colon and a remedy.
	what func(*Facts) string
	// stops are the commands that cannot work, costs those that lose what lost
	// says. With neither it is only worth knowing.
	stops, costs []Command
	lost         string
	// plain is set if the check's value says what is wrong already.
	plain bool
	// minor is set if the loss is not worth a warning before every run.
	minor bool
	// missing is the capability whose lack it is, if it is one's.
	missing capability.Capability
	// denies are the capabilities that have no effect where it is wrong: what
	// the kernel refuses to somebody who has them is explained by it.
	denies capability.Set
	// causes returns the problems that it follows from; nil for none. Their
	// remedies mend it.
	causes func(*Facts) []Problem
	remedy func(*Facts) Remedy
}

// Remedy is what to do about a problem.
type Remedy struct {
	// Do says it in words.
	Do string `json:"do,omitempty"`
	// Paste is a line for a shell that does it, if there is one.
	Paste string `json:"paste,omitempty"`
}

// String returns the words and the line.
func (r Remedy) String() string {
	switch {
	case r.Do == "":
		return r.Paste
	case r.Paste == "":
		return r.Do
	}
	return r.Do + ": " + r.Paste
}

// Problem is what a check found wrong.
type Problem struct {
	// Check is the ID of the check.
	Check string `json:"-"`
	// What says what is wrong.
	What string `json:"what"`
	// FollowsFrom are the checks whose problems are the cause. Their remedies
	// mend it, and it has none.
	FollowsFrom []string `json:"follows_from,omitempty"`
	// Stops are the commands that cannot work, Costs those that work without
	// what Lost says.
	Stops []Command `json:"stops,omitempty"`
	Costs []Command `json:"costs,omitempty"`
	Lost  string    `json:"lost,omitempty"`
	// Remedy is what to do about it; empty if nothing can be done.
	Remedy Remedy `json:"remedy,omitzero"`

	plain   bool
	minor   bool
	missing capability.Capability
	denies  capability.Set
}

// String says what is wrong and what to do.
func (p *Problem) String() string {
	if remedy := p.Remedy.String(); remedy != "" {
		return p.What + ": " + remedy
	}
	return p.What
}

// judge returns what c finds wrong, nil if nothing.
func (c *check) judge(f *Facts) *Problem {
	for _, fault := range c.faults {
		if !fault.when(f) {
			continue
		}
		p := &Problem{
			Check: c.id, What: fault.what(f), Stops: fault.stops, Costs: fault.costs, Lost: fault.lost,
			plain: fault.plain, minor: fault.minor, denies: fault.denies,
		}
		if fault.missing != 0 {
			p.missing = f.Known(fault.missing)
		}
		if fault.causes != nil {
			for _, cause := range fault.causes(f) {
				p.FollowsFrom = append(p.FollowsFrom, cause.Check)
			}
		}
		if fault.remedy != nil && p.FollowsFrom == nil {
			p.Remedy = fault.remedy(f)
		}
		return p
	}
	return nil
}

// The checks that others ask for by name.
const (
	CheckProc   = "proc"
	CheckCgroup = "cgroup"

	checkBTF = "btf"
)

// Judge returns what the check with the given ID finds wrong, nil if nothing.
func (f *Facts) Judge(id string) *Problem {
	for i := range grounds {
		if grounds[i].id == id {
			return grounds[i].judge(f)
		}
	}
	return nil
}

// problems returns what checks find wrong, in their order.
func problems(checks []check, f *Facts) []Problem {
	var found []Problem
	for i := range checks {
		if p := checks[i].judge(f); p != nil {
			found = append(found, *p)
		}
	}
	return found
}

// origins returns the IDs of the checks that p comes from.
func (p *Problem) origins() []string {
	if p.FollowsFrom != nil {
		return p.FollowsFrom
	}
	return []string{p.Check}
}

// harmless reports whether p is of no consequence.
func (p *Problem) harmless() bool { return len(p.Stops)+len(p.Costs) == 0 && p.denies == 0 }

// hits reports whether p stops or costs a command.
func (p *Problem) hits(c Command) (stops, costs bool) {
	return slices.Contains(p.Stops, c), slices.Contains(p.Costs, c)
}

// always is what does not depend on the facts.
func always[T any](v T) func(*Facts) T { return func(*Facts) T { return v } }

// do and paste are remedies that are the same everywhere.
func do(words string) func(*Facts) Remedy { return always(Remedy{Do: words}) }
func paste(line string) func(*Facts) Remedy {
	return always(Remedy{Paste: line})
}
