package perfevent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Spec is an event selected by name, as with "perf record -e" and [ParseEvent].
type Spec struct {
	// Name is the event's name as requested, without modifiers.
	Name string
	// Type, Config, Config1 and Config2 are the fields of [Attr].
	Type                     uint32
	Config, Config1, Config2 uint64
	// ExcludeUser and ExcludeKernel come from the modifiers :k and :u.
	ExcludeUser, ExcludeKernel bool
	// Precise is [Attr.Precise]: the number of p's in the modifiers.
	Precise int
	// CPUs lists the CPUs whose PMU has the event, in ascending order. nil means all.
	CPUs []int
}

// Dummy is an event that never occurs. It serves for the other records of its ring, and needs no privileges for own threads.
var Dummy = Spec{Name: "dummy", Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, ExcludeKernel: true}

// Attr returns the attributes of the event. The caller sets the sampling rate.
func (s Spec) Attr() Attr {
	return Attr{
		Type: s.Type, Config: s.Config, Config1: s.Config1, Config2: s.Config2,
		ExcludeUser: s.ExcludeUser, ExcludeKernel: s.ExcludeKernel, Precise: s.Precise,
	}
}

// HasCPU reports whether the event can be opened on cpu.
func (s Spec) HasCPU(cpu int) bool {
	if s.CPUs == nil {
		return true
	}
	return slices.Contains(s.CPUs, cpu)
}

// IsTime reports whether the event counts nanoseconds, which makes a sample's period a
// duration.
func (s Spec) IsTime() bool {
	return s.Type == unix.PERF_TYPE_SOFTWARE &&
		(s.Config == unix.PERF_COUNT_SW_CPU_CLOCK || s.Config == unix.PERF_COUNT_SW_TASK_CLOCK)
}

// Name returns the name of a generalized event of the kernel, or "type:config" for any
// other event.
func Name(typ uint32, config uint64) string {
	for name, e := range generic {
		if e.typ == typ && e.config == config && !slices.Contains(aliases, name) {
			return name
		}
	}
	return fmt.Sprintf("%d:%#x", typ, config)
}

// aliases are alternative names of generic events.
var aliases = []string{"cpu-cycles", "branch-instructions", "faults", "cs", "migrations"}

// generic maps the names of perf-list(1) to the kernel's generalized events.
var generic = map[string]struct {
	typ    uint32
	config uint64
}{
	"cycles":                  {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	"cpu-cycles":              {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	"instructions":            {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
	"cache-references":        {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_REFERENCES},
	"cache-misses":            {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES},
	"branches":                {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
	"branch-instructions":     {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
	"branch-misses":           {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_MISSES},
	"bus-cycles":              {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BUS_CYCLES},
	"stalled-cycles-frontend": {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_STALLED_CYCLES_FRONTEND},
	"stalled-cycles-backend":  {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
	"ref-cycles":              {unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_REF_CPU_CYCLES},
	"cpu-clock":               {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK},
	"task-clock":              {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK},
	"page-faults":             {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS},
	"faults":                  {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS},
	"minor-faults":            {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS_MIN},
	"major-faults":            {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ},
	"context-switches":        {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	"cs":                      {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	"cpu-migrations":          {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_MIGRATIONS},
	"migrations":              {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_MIGRATIONS},
	"alignment-faults":        {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_ALIGNMENT_FAULTS},
	"emulation-faults":        {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_EMULATION_FAULTS},
}

// ParseEvent parses the name of an event: a generic event ("cycles", "cpu-clock",
// "page-faults"), a raw event ("r1a8", the hexadecimal config of the CPU's PMU), or an
// event of a PMU under /sys/bus/event_source/devices by its terms
// ("cpu/event=0x3c,umask=1/") or alias ("cpu_core/cpu-cycles/"). The modifiers ":u" and
// ":k" restrict counting to user or kernel mode (the colon is optional after a PMU's
// event). Each p, up to three, asks for a more precise instruction pointer. ParseEvent
// does not check whether the machine supports the event; [Open] does.
func ParseEvent(spec string) (Spec, error) { return parseEvent(devices, spec) }

func parseEvent(devices, spec string) (Spec, error) {
	name, modifiers := splitModifiers(spec)
	s, err := eventByName(devices, name)
	if err != nil {
		return Spec{}, fmt.Errorf("event %q: %w", spec, err)
	}
	if err := s.modify(modifiers); err != nil {
		return Spec{}, fmt.Errorf("event %q: %w", spec, err)
	}
	s.Name = name
	return s, nil
}

// splitModifiers splits the modifiers off an event's name. The terms of a PMU may contain
// colons, so there the modifiers start after the last slash.
func splitModifiers(spec string) (name, modifiers string) {
	if i := strings.LastIndexByte(spec, '/'); i >= 0 {
		return spec[:i+1], strings.TrimPrefix(spec[i+1:], ":")
	}
	name, modifiers, _ = strings.Cut(spec, ":")
	return name, modifiers
}

// maxPrecise is the kernel's limit for precise_ip.
const maxPrecise = 3

// modify applies modifiers to s. "u" and "k" together mean both.
func (s *Spec) modify(modifiers string) error {
	user, kernel := false, false
	for _, m := range modifiers {
		switch m {
		case 'u':
			user = true
		case 'k':
			kernel = true
		case 'p':
			s.Precise++
		default:
			return fmt.Errorf("unknown modifier %q: only u (user), k (kernel) and p (precise) are supported", m)
		}
	}
	if s.Precise > maxPrecise {
		return fmt.Errorf("modifier p is given %d times: give it at most %d times", s.Precise, maxPrecise)
	}
	s.ExcludeUser = kernel && !user
	s.ExcludeKernel = user && !kernel
	return nil
}

func eventByName(devices, name string) (Spec, error) {
	if g, ok := generic[name]; ok {
		return Spec{Type: g.typ, Config: g.config}, nil
	}
	if pmu, terms, ok := strings.Cut(name, "/"); ok {
		terms, ok = strings.CutSuffix(terms, "/")
		if !ok {
			return Spec{}, fmt.Errorf("missing the slash after the terms of PMU %q", pmu)
		}
		return pmuEvent(devices, pmu, terms)
	}
	if digits, ok := strings.CutPrefix(name, "r"); ok {
		if config, err := strconv.ParseUint(digits, 16, 64); err == nil {
			return Spec{Type: unix.PERF_TYPE_RAW, Config: config}, nil
		}
	}
	return Spec{}, fmt.Errorf("unknown event: use a name such as cycles or cpu-clock, a raw one (rNNN), or pmu/terms/; see perf list")
}
