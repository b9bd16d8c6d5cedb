// Package trigger recognizes the moments at which a flight recorder writes what it holds: a wait of the
// target that takes long, a process that ends, memory that runs short, a signal.
//
// [Parse] reads a trigger as users write it. [New] makes a [Set], which is told of the events of a recording
// and looks at the machine once a second. What it finds is a [Firing].
package trigger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// Trigger is a condition to write a recording.
type Trigger struct {
	// Text is the trigger as it was written, and Name the name of its kind, such as "psi".
	Text, Name string

	kind  *kind
	of    string        // what it looks at: an event, a resource, a program
	until string        // the second event
	limit int64         // in the unit of the kind
	hold  time.Duration // how long the limit must be exceeded
}

// Firing is a moment at which a trigger fired.
type Firing struct {
	// Trigger is the trigger as it was written, and Name the name of its kind.
	Trigger, Name string
	// At is when it fired, and Begin when that began which made it fire, in ns of CLOCK_MONOTONIC.
	At, Begin int64
	// Value is what was measured, such as "2.31 s", "" for nothing.
	Value string
	// PID and TID are the thread, 0 if it is unknown.
	PID, TID int
}

// Needs are the parts that a recording must have for a trigger.
type Needs struct {
	CPU, Waits bool
	// Events are tracepoints whose hits it needs.
	Events []Event
	// Begin and Until are the events of the intervals that it needs, "" for none. Until is "" for the usual
	// counterpart of Begin.
	Begin, Until string
}

// Event is a tracepoint that a trigger needs.
type Event struct {
	// Name is its name, such as "oom:mark_victim", and Filter a condition for hits.
	Name, Filter string
	// Everywhere is set if hits by threads outside of the target matter, too.
	Everywhere bool
}

// kind is a kind of triggers. A new one is an entry in kinds.
type kind struct {
	name string
	// form is how it is written, and about what makes it fire.
	form, about string
	// unit parses the limit after ">"; nil if the kind has none.
	unit func(string) (int64, error)
	// of says what may come after ":" in the name, nil for nothing.
	of func(string) error
	// holds is set if a time may follow the limit: "for 10s".
	holds bool
	needs func(t *Trigger) Needs
	// open checks whether the trigger can work here, and returns its watch.
	open func(t *Trigger, host Host) (watch, error)
}

// watch is told of what a trigger depends on. Functions that it does not need are nil.
type watch struct {
	// wait is called for each period off the CPU of the target that has ended, in its full length.
	wait func(Wait) *Firing
	// marker is called for each hit of the events that it needs, and for each interval.
	marker func(Marker) *Firing
	// look is called once a second, with the time in ns since the last look and the CPU time of the
	// target in it.
	look func(since time.Duration, cpu time.Duration) (value string, fires bool)
	// run, if not nil, replaces look: it may take long, and runs in a goroutine of its own.
	run func() (value string, fires bool)
}

// kinds are the kinds of triggers, in the order of the help. init sets it, since a kind refers to the list.
var kinds []*kind

func init() {
	kinds = []*kind{
		{name: "signal", form: "signal", about: "fulgur gets SIGUSR1, which always works"},
		{name: "stop", form: "stop", about: "the recording ends: Ctrl-C, SIGTERM or the end of the duration"},
		{name: "exit", form: "exit", about: "a process of -p, or the command, exits", needs: needsExit, open: openExit},
		{name: "crash", form: "crash", about: "a signal kills a process of the target, such as SIGSEGV, SIGABRT or SIGKILL", needs: needsCrash, open: openCrash},
		{name: "wait", form: "wait>2s", about: "a thread of the target waits longer, and goes on", unit: duration, needs: needsWaits, open: openWait},
		{name: "runq", form: "runq>100ms", about: "a thread of the target is ready to run for longer, without a CPU", unit: duration, needs: needsWaits, open: openRunQueue},
		{name: "latency", form: "latency:EVENT>50ms", about: "a function takes longer, or the time from EVENT to its end; latency:EVENT..EVENT>50ms names both", unit: duration, of: anything, needs: needsLatency, open: openLatency},
		{name: "cpu", form: "cpu>90%", about: "the target uses more of a CPU in a second; cpu>90% for 10s: in each of them", unit: percent, holds: true, needs: needsCPU, open: openCPU},
		{name: "memory", form: "memory>2G", about: "the target has more resident memory", unit: bytes, holds: true, open: openMemory},
		{name: "psi", form: "psi:memory>10%", about: "tasks wait for memory, cpu or io during more of a second (pressure stall information)", unit: percent, of: resource, holds: true, open: openPressure},
		{name: "throttled", form: "throttled", about: "a limit on CPU time stops the cgroup of the target (cpu.max)", open: openThrottled},
		{name: "oom", form: "oom", about: "the kernel kills a process of the target because memory has run out", needs: needsOOM, open: openOOM},
		{name: "command", form: "command:PROGRAM", about: "PROGRAM, which runs once a second, exits with code 0", of: anything, open: openCommand},
	}
}

// Names returns the names of the kinds of triggers.
func Names() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Forms returns the triggers as users write them, each with what makes it fire.
func Forms() (lines [][2]string) {
	for _, k := range kinds {
		lines = append(lines, [2]string{k.form, k.about})
	}
	return lines
}

// Parse returns a trigger as users write it. The error is a usage error that lists the triggers.
func Parse(text string) (*Trigger, error) {
	t := &Trigger{Text: text, hold: look}
	head, limit, limited := strings.Cut(text, ">")
	if strings.HasPrefix(text, "command:") {
		head, limit, limited = text, "", false
	}
	name, of, has := strings.Cut(head, ":")
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == name })
	if i < 0 {
		return nil, usage.Errorf("no trigger %q: choose %s", text, plain.Or(Names()))
	}
	k := kinds[i]
	t.kind, t.Name = k, name
	if k.name == "latency" && limited {
		// A function may be an operator: the limit comes last.
		last := strings.LastIndex(text, ">")
		limit = text[last+1:]
		_, of, _ = strings.Cut(text[:last], ":")
	}
	wrong := func(why string) error {
		return usage.Errorf("trigger %q: %s; write it as %s", text, why, k.form)
	}
	switch {
	case has && k.of == nil:
		return nil, wrong("nothing comes after the name")
	case k.of != nil && strings.TrimSpace(of) == "":
		return nil, wrong("what comes after the colon is missing")
	case limited && k.unit == nil:
		return nil, wrong("it has no limit")
	case !limited && k.unit != nil:
		return nil, wrong("the limit is missing")
	}
	if k.of != nil {
		if err := k.of(of); err != nil {
			return nil, wrong(err.Error())
		}
		t.of, t.until, _ = strings.Cut(of, "..")
		if k.name != "latency" {
			t.of, t.until = of, ""
		}
	}
	if !limited {
		return t, nil
	}
	limit, hold, held := strings.Cut(limit, " for ")
	if held && !k.holds {
		return nil, wrong("the limit is for a single moment")
	}
	var err error
	if t.limit, err = k.unit(strings.TrimSpace(limit)); err != nil {
		return nil, wrong(err.Error())
	}
	if held {
		ns, err := duration(strings.TrimSpace(hold))
		if err != nil {
			return nil, wrong(err.Error())
		}
		t.hold = max(time.Duration(ns), look)
	}
	return t, nil
}

// Needs returns what the trigger needs of a recording.
func (t *Trigger) Needs() Needs {
	if t.kind.needs == nil {
		return Needs{}
	}
	return t.kind.needs(t)
}

// firing returns that t fires.
func (t *Trigger) firing(at, begin int64, value string, pid, tid int) *Firing {
	return &Firing{Trigger: t.Text, Name: t.Name, At: at, Begin: begin, Value: value, PID: pid, TID: tid}
}

// anything accepts any text.
func anything(string) error { return nil }

// resource accepts the resources of pressure stall information.
func resource(name string) error {
	if all := []string{"cpu", "io", "memory"}; !slices.Contains(all, name) {
		return fmt.Errorf("no pressure of %q: choose %s", name, plain.Or(all))
	}
	return nil
}
