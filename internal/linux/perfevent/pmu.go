package perfevent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// devices is the directory in which the kernel describes its PMUs, one directory each. See
// Documentation/ABI/testing/sysfs-bus-event_source-devices-format and its neighbors.
const devices = "/sys/bus/event_source/devices"

// pmuEvent parses an event of a PMU: comma-separated terms, each "name=value" or an
// alias.
func pmuEvent(devices, pmu, terms string) (Spec, error) {
	if !isName(pmu) {
		return Spec{}, fmt.Errorf("bad PMU name %q", pmu)
	}
	dir := filepath.Join(devices, pmu)
	typ, err := readUint(filepath.Join(dir, "type"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Spec{}, fmt.Errorf("this machine has no PMU %q: see %s", pmu, devices)
	case err != nil:
		return Spec{}, err
	}
	s := Spec{Type: uint32(typ)}
	if s.CPUs, err = pmuCPUs(dir); err != nil {
		return Spec{}, err
	}
	if err := s.addTerms(dir, terms, true); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// addTerms applies terms to s. Aliases are allowed in the user's terms, but not within
// another alias.
func (s *Spec) addTerms(dir, terms string, aliases bool) error {
	if strings.TrimSpace(terms) == "" {
		return nil
	}
	for term := range strings.SplitSeq(terms, ",") {
		name, value, hasValue := strings.Cut(strings.TrimSpace(term), "=")
		if !isName(name) {
			return fmt.Errorf("bad term %q", term)
		}
		if aliases && !hasValue {
			alias, err := os.ReadFile(filepath.Join(dir, "events", name))
			if err == nil {
				if err := s.addTerms(dir, string(alias), false); err != nil {
					return fmt.Errorf("alias %s: %w", name, err)
				}
				continue
			}
		}
		number := uint64(1) // a bare flag
		if hasValue {
			var err error
			if number, err = strconv.ParseUint(value, 0, 64); err != nil {
				return fmt.Errorf("term %q: %w", term, err)
			}
		}
		if err := s.setTerm(dir, name, number); err != nil {
			return fmt.Errorf("term %q: %w", term, err)
		}
	}
	return nil
}

// setTerm stores value in the bits that the PMU's format file of that name lists. Every
// PMU has config, config1 and config2.
func (s *Spec) setTerm(dir, name string, value uint64) error {
	format := name + ":0-63"
	if s.word(name) == nil {
		b, err := os.ReadFile(filepath.Join(dir, "format", name))
		if err != nil {
			return fmt.Errorf("neither a term nor an alias of this PMU: see %s", dir)
		}
		format = string(b)
	}
	word, bits, err := parseFormat(format)
	if err != nil {
		return err
	}
	field := s.word(word)
	if field == nil {
		return fmt.Errorf("format %q: unsupported word %q", format, word)
	}
	for _, bit := range bits {
		*field = *field&^(1<<bit) | value&1<<bit
		value >>= 1
	}
	if value != 0 {
		return fmt.Errorf("value does not fit into %d bits", len(bits))
	}
	return nil
}

// word returns the configuration word with the given name, or nil if there is none.
func (s *Spec) word(name string) *uint64 {
	switch name {
	case "config":
		return &s.Config
	case "config1":
		return &s.Config1
	case "config2":
		return &s.Config2
	}
	return nil
}

// parseFormat parses a format file such as "config:0-7,32-35": a configuration word and
// its bits, the value's lowest bit first.
func parseFormat(format string) (word string, bits []int, err error) {
	word, list, ok := strings.Cut(strings.TrimSpace(format), ":")
	if !ok {
		return "", nil, fmt.Errorf("format %q: no colon", format)
	}
	bits, err = ParseCPUList(list) // the same notation
	if err != nil || len(bits) == 0 || bits[len(bits)-1] > 63 {
		return "", nil, fmt.Errorf("format %q: bad bits", format)
	}
	return word, bits, nil
}

// pmuCPUs returns the CPUs on which a PMU counts: all CPUs of a kind for a core PMU of a
// hybrid machine, one CPU of each package for an uncore PMU. nil means all.
func pmuCPUs(dir string) ([]int, error) {
	for _, file := range []string{"cpus", "cpumask"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return ParseCPUList(string(b))
	}
	return nil, nil
}

// isName reports whether s is a valid file name in a PMU's directory, rather than a path
// out of it.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

// DefaultEvents returns the events to sample by default: hardware cycles if a PMU counts
// them (one event for each core PMU of a hybrid machine), otherwise cpu-clock. It opens
// the events to find out.
func DefaultEvents() ([]Spec, error) {
	cycles, err := coreCycles(devices)
	if err != nil {
		return nil, err
	}
	for _, s := range cycles {
		if err = s.probe(); err != nil {
			break
		}
	}
	switch {
	case err == nil:
		return cycles, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		slog.Debug("no cycle counter, sample cpu-clock", "error", err)
		clock, err := ParseEvent("cpu-clock")
		return []Spec{clock}, err
	default:
		return nil, err
	}
}

// Cycles returns the cycle counters of the machine's core PMUs, one for each kind of
// core, whether or not they can be opened.
func Cycles() ([]Spec, error) { return coreCycles(devices) }

// coreCycles returns the cycle counters of the machine's core PMUs: the generic event or,
// if several kinds of cores have their own PMU, one event for each of them.
func coreCycles(devices string) ([]Spec, error) {
	var specs []Spec
	entries, err := os.ReadDir(devices)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("find PMUs: %w", err)
	}
	for _, e := range entries {
		// Only core PMUs of a hybrid machine have a file cpus (uncore PMUs have cpumask)
		// and an alias for cycles. arm64 spells the alias differently.
		if _, err := os.Stat(filepath.Join(devices, e.Name(), "cpus")); err != nil {
			continue
		}
		for _, alias := range []string{"cpu-cycles", "cpu_cycles"} {
			if _, err := os.Stat(filepath.Join(devices, e.Name(), "events", alias)); err != nil {
				continue
			}
			s, err := parseEvent(devices, e.Name()+"/"+alias+"/")
			if err != nil {
				return nil, err
			}
			specs = append(specs, s)
			break
		}
	}
	if len(specs) > 1 {
		return specs, nil
	}
	s, err := parseEvent(devices, "cycles")
	return []Spec{s}, err
}

// probe opens and closes the event on the calling thread, to check whether the machine
// can count and sample it.
func (s Spec) probe() error {
	a := s.Attr()
	a.Disabled = true
	a.ExcludeKernel = true // requires fewer privileges
	a.Period = 1 << 20     // a PMU without interrupts cannot sample
	e, err := Open(a, 0, -1)
	if err != nil {
		return err
	}
	return e.Close()
}
