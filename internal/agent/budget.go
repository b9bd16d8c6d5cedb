package agent

import (
	"time"

	"fulgur/internal/session"
)

// Budget is what an agent may use.
type Budget struct {
	// CPU is the share of the CPU time of all CPUs, 0 for no limit.
	CPU float64
	// Memory is in bytes, 0 for no limit. It includes BPF programs and maps.
	Memory uint64
}

// consumed is an agent's resource use in a period of time.
type consumed struct {
	elapsed time.Duration
	cpu     float64 // as a share of the CPU time of all CPUs
	memory  uint64  // in bytes, at the end
}

// state is the extent to which an agent has reduced its measurement to stay within its
// budget. The zero value reduces nothing, and has no credit.
type state struct {
	// step is the number of steps taken to save CPU time, see [steps].
	step int
	// credit is unused CPU time, as the time in which the budget allows that much.
	credit time.Duration
	// shed is how much memory the agent frees, see [shedNothing]. above is how long memory
	// has been above the limit since the last change of shed, and calm how long it has been
	// well below the limit.
	shed        int
	above, calm time.Duration
}

const (
	// maxCredit limits the credit. It pays for the agent's start and for starts of large programs.
	// It also pays for a step back, which may cost too much. So the agent earns all of it first.
	maxCredit = 5 * time.Minute
	// stepTime is the time that a step has to show effect. It is also the credit after a step.
	stepTime = time.Minute
	// The agent uses more memory again after calmTime below calmShare of the limit.
	calmTime  = 5 * time.Minute
	calmShare = 0.75
)

// Values of [state.shed].
const (
	shedNothing = iota
	shedCaches  // keep few tables of symbols, and only unwind tables that are in use
	shedNames   // also look up no names
)

// next returns the state after a period of time.
//
// CPU time is a token bucket: unused time adds up to a credit. When the credit is used up, the agent
// takes one more step; when the credit is full, it takes a step back. The nearer the agent's use is to
// the budget, the longer it waits before a step back.
func (s state) next(b Budget, u consumed) state {
	if s.credit += u.elapsed; b.CPU > 0 {
		s.credit -= time.Duration(min(u.cpu/b.CPU*float64(u.elapsed), float64(10*maxCredit)))
	}
	last := len(steps) - 1
	switch {
	case b.CPU == 0:
		s.step, s.credit = 0, maxCredit
	case s.credit < 0 && s.step < last:
		s.step, s.credit = s.step+1, stepTime
	case s.credit < 0:
		s.step, s.credit = last, 0 // no debts: there is nothing left to save
	case s.credit >= maxCredit && s.step > 0:
		s.step, s.credit = s.step-1, maxCredit
	default:
		s.credit = min(s.credit, maxCredit)
	}
	if s.calm += u.elapsed; float64(u.memory) > calmShare*float64(b.Memory) {
		s.calm = 0
	}
	if s.above += u.elapsed; u.memory <= b.Memory {
		s.above = 0
	}
	switch {
	case b.Memory == 0:
		s.shed, s.above, s.calm = shedNothing, 0, 0
	case s.above > 0 && s.shed == shedNothing, s.above >= stepTime && s.shed < shedNames:
		s.shed, s.above = s.shed+1, 0
	case s.calm >= calmTime && s.shed > shedNothing:
		s.shed, s.calm = s.shed-1, 0
	}
	return s
}

// limits returns how an agent measures in a state.
func (s state) limits() session.Limits {
	l := steps[s.step]
	l.LessMemory = s.shed >= shedCaches
	l.NoSymbols = l.NoSymbols || s.shed >= shedNames
	return l
}

// steps are the limits after each number of steps that save CPU time. The first three steps each halve
// the numbers of samples and of measured waits, and the last one omits names.
var steps = []session.Limits{{}, {Reduction: 2}, {Reduction: 4}, {Reduction: 8}, {Reduction: 8, NoSymbols: true}}
