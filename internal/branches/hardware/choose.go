package hardware

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/sampling"
	"fulgur/internal/linux/perfevent"
)

// Event is an event to sample for its branch records.
type Event struct {
	// Specs holds the event on each kind of core, all with one name.
	Specs []perfevent.Spec
	Rate  sampling.Rate
	// Kernel records branches in the kernel, instead of those in user code.
	Kernel bool
}

// inKernel restricts e to the kernel.
func (e *Event) inKernel() {
	e.Kernel = true
	for i := range e.Specs {
		e.Specs[i].ExcludeUser, e.Specs[i].ExcludeKernel = true, false
	}
}

// sampleType selects all kinds of branches at the event's privilege level.
func (e Event) sampleType() uint64 {
	if e.Kernel {
		return unix.PERF_SAMPLE_BRANCH_KERNEL | unix.PERF_SAMPLE_BRANCH_ANY
	}
	return unix.PERF_SAMPLE_BRANCH_USER | unix.PERF_SAMPLE_BRANCH_ANY
}

// ErrNone means that no PMU of this machine can record branches, or not with
// the requested event.
var ErrNone = errors.New("no branch recording hardware")

// Choose returns the best event for branch records on this machine, in user code or in the
// kernel, at about the given frequency in Hz. It opens events to find out.
//
// The best event counts taken branches, because then each branch has the same chance
// to be recorded. Cycles favor branches in slow code.
func Choose(frequency uint64, kernel bool) (Event, error) {
	events, err := candidates(devices, frequency)
	if err != nil {
		return Event{}, err
	}
	for _, e := range events {
		if kernel {
			e.inKernel()
		}
		err := e.probe()
		switch {
		case err == nil:
			return e, nil
		case !unsupported(err):
			return Event{}, err
		}
	}
	return Event{}, fmt.Errorf("%w that fulgur can use here: the CPU's last branch records (Intel LBR, AMD BRS and LBRv2, Arm BRBE) need kernel support, and virtual machines rarely have them; run fulgur on the host or on another machine", ErrNone)
}

// Named returns the event with a name, for branch records in user code or in the kernel, at
// the given rate.
func Named(name string, rate sampling.Rate, kernel bool) (Event, error) {
	spec, err := perfevent.ParseEvent(name)
	if err != nil {
		return Event{}, err
	}
	e := Event{Specs: []perfevent.Spec{spec}, Rate: rate}
	if kernel {
		e.inKernel()
	}
	err = e.probe()
	if unsupported(err) {
		return e, fmt.Errorf("%w for event %s: %w", ErrNone, name, err)
	}
	return e, err
}

// devices is the directory in which the kernel describes its PMUs.
const devices = "/sys/bus/event_source/devices"

// candidates returns the events to try, the best first.
func candidates(devices string, frequency uint64) ([]Event, error) {
	var events []Event
	add := func(rate sampling.Rate, names ...string) error {
		var e Event
		for _, name := range names {
			spec, err := perfevent.ParseEvent(name)
			if err != nil {
				return err
			}
			e.Specs = append(e.Specs, spec)
		}
		e.Rate = rate
		events = append(events, e)
		return nil
	}
	byFrequency := sampling.Rate{Frequency: frequency}
	if _, err := os.Stat(filepath.Join(devices, "cpu", "events", "branch-brs")); err == nil {
		if err := add(sampling.Rate{Period: brsPeriod(frequency)}, "cpu/branch-brs/"); err != nil {
			return nil, err
		}
	}
	if terms := nearTaken(pmuName(devices)); terms != "" {
		// With a precise event, the records end at the sampled branch and
		// not at the late interrupt. Without PEBS, even late records are
		// better than cycles.
		for _, modifiers := range []string{"pp", ""} {
			if err := add(byFrequency, "cpu/"+terms+"/"+modifiers); err != nil {
				return nil, err
			}
		}
	}
	cycles, err := perfevent.Cycles()
	return append(events, Event{Specs: cycles, Rate: byFrequency}), err
}

// pmuName returns the kernel's name of the CPU's microarchitecture, "" if it has
// none.
func pmuName(devices string) string {
	b, err := os.ReadFile(filepath.Join(devices, "cpu", "caps", "pmu_name"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// nearTaken returns the terms of Intel's event for taken branches,
// BR_INST_RETIRED.NEAR_TAKEN, for microarchitectures whose code is known: on others
// the same code may count something else, or nothing. The names are from the
// kernel's arch/x86/events/intel/core.c.
func nearTaken(pmu string) string {
	switch pmu {
	case "haswell", "broadwell", "skylake", "icelake", "sapphire_rapids", "granite_rapids":
		return "event=0xc4,umask=0x20"
	}
	return ""
}

// brsPeriod returns the period for branch sampling on AMD Zen 3, which counts taken
// branches, and which the kernel samples only by period. A busy core takes about a
// billion branches in 2 s. The period must exceed the 16 records of a sample.
func brsPeriod(frequency uint64) uint64 {
	const perSecond = 500_000_000
	return max(perSecond/max(frequency, 1), 1009) | 1
}

// probe checks whether the machine supports the event with branch records, by
// opening it on the calling thread.
func (e Event) probe() error {
	for _, spec := range e.Specs {
		a := spec.Attr()
		a.Disabled = true
		a.Frequency, a.Period = e.Rate.Frequency, e.Rate.Period
		a.BranchSampleType = e.sampleType()
		event, err := perfevent.Open(a, 0, -1)
		if err == nil {
			err = event.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unsupported reports whether err means that the machine lacks the event, or branch
// records for it.
func unsupported(err error) bool {
	for _, errno := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EINVAL, unix.ENODEV} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
