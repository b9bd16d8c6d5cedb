package rules

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"fulgur/internal/bpf"
	"fulgur/internal/containers"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
)

// Sizes of the kernel side's tables. Those of groups and programs drop what was not used for long.
const (
	maxGroups    = 1 << 13
	maxPrograms  = 1 << 13
	maxProcesses = 1 << 15
)

// Judge keeps the kernel side's tables of rules up to date, and decides about samples that the kernel
// side took before it could. A nil Judge, of a measurement without rules, does nothing. Its methods are
// not safe for concurrent use, except for [Judge.Leaves].
type Judge struct {
	rules Rules
	// byImage means that the kernel side's key of a group is the image of a process.
	byImage bool
	owners  *containers.Tracker
	// program returns the path of the program that a process ran at a time (CLOCK_MONOTONIC ns), ""
	// if unknown.
	program func(pid int, at uint64) string

	loaded *ebpf.Collection
	links  []link.Link

	groups   map[uint64]*containers.Membership // that the kernel side does not know yet
	programs map[uint64]set                    // that were found; the kernel side may have dropped them
}

// New returns the judge for rules, nil without rules. owners finds the places of processes; program
// returns the path of the program that a process ran at a time (CLOCK_MONOTONIC ns), "" if it is
// unknown. types caches the kernel's BTF; may be nil. Errors of the kernel are as cilium/ebpf returns
// them.
func New(r Rules, owners *containers.Tracker, program func(pid int, at uint64) string, types *btf.Cache) (*Judge, error) {
	if !r.Any() {
		return nil, nil
	}
	return newJudge(owners.Mixed(), r, owners, program, types)
}

func newJudge(byImage bool, r Rules, owners *containers.Tracker, program func(pid int, at uint64) string, types *btf.Cache) (*Judge, error) {
	j := &Judge{rules: r, byImage: byImage, owners: owners, program: program, groups: map[uint64]*containers.Membership{}, programs: map[uint64]set{}}
	if err := j.load(types); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// load loads the programs that follow processes, and their maps, and fills in the users.
func (j *Judge) load(types *btf.Cache) error {
	spec, err := bpf.LoadRules()
	if err != nil {
		return err
	}
	spec.Maps[bpf.RulesMapRulesUsers].MaxEntries = uint32(max(len(j.rules.users()), 1))
	if j.rules.tests(kindGroup) {
		spec.Maps[bpf.RulesMapRulesGroups].MaxEntries = maxGroups
	}
	if j.rules.tests(kindProgram) {
		spec.Maps[bpf.RulesMapRulesPrograms].MaxEntries = maxPrograms
		spec.Maps[bpf.RulesMapRulesProcesses].MaxEntries = maxProcesses
	}
	options := ebpf.CollectionOptions{Cache: types}
	memlock.Lift()
	if err := bpf.UsePIDNamespace(spec, &options); err != nil {
		return err
	}
	if j.loaded, err = ebpf.NewCollectionWithOptions(spec, options); err != nil {
		return fmt.Errorf("load the programs for rules: %w", err)
	}
	for _, user := range j.rules.users() {
		if err := j.loaded.Maps[bpf.RulesMapRulesUsers].Put(user, uint64(j.rules.ofUser(user))); err != nil {
			return fmt.Errorf("pass the rules for user %d to the BPF programs: %w", user, err)
		}
	}
	if !j.rules.tests(kindProgram) {
		return nil
	}
	for _, name := range []string{bpf.RulesProgRulesFree, bpf.RulesProgRulesFork, bpf.RulesProgRulesExec} {
		l, err := link.AttachTracing(link.TracingOptions{Program: j.loaded.Programs[name]})
		if err != nil {
			return fmt.Errorf("follow the programs of processes: %w", err)
		}
		j.links = append(j.links, l)
	}
	return nil
}

// tell adds an entry to the kernel side's table of groups or programs. If that fails, the kernel side
// asks again.
func (j *Judge) tell(table string, key uint64, matched set) {
	if err := j.loaded.Maps[table].Put(key, uint64(matched)); err != nil {
		slog.Debug("rules of a process not passed on", "table", table, "error", err)
	}
}

// Replacements returns the maps to load probes with.
func (j *Judge) Replacements() map[string]*ebpf.Map {
	shared := map[string]*ebpf.Map{}
	if j == nil {
		return shared
	}
	for _, name := range []string{bpf.RulesMapRulesUsers, bpf.RulesMapRulesGroups, bpf.RulesMapRulesPrograms, bpf.RulesMapRulesProcesses} {
		shared[name] = j.loaded.Maps[name]
	}
	return shared
}

// Variables returns the variables to load probes with.
func (j *Judge) Variables() map[string]any {
	if j == nil {
		return nil
	}
	r := j.rules
	return map[string]any{
		bpf.VarRulesInclude:      uint64(r.include()),
		bpf.VarRulesExclude:      uint64(r.exclude()),
		bpf.VarRulesSlow:         uint64(r.slow()),
		bpf.VarRulesTestUser:     r.tests(kindUser),
		bpf.VarRulesTestGroup:    r.tests(kindGroup),
		bpf.VarRulesTestProgram:  r.tests(kindProgram),
		bpf.VarRulesAnyUser:      uint64(r.unknown(kindUser)),
		bpf.VarRulesAnyGroup:     uint64(r.unknown(kindGroup)),
		bpf.VarRulesAnyProgram:   uint64(r.unknown(kindProgram)),
		bpf.VarRulesMinAge:       uint64(r.MinAge),
		bpf.VarRulesGroupByImage: j.byImage,
	}
}

// Rates returns the variables of samples for a rate in Hz, 0 if it is not known: the rules that lower
// it, and the numbers of samples of which one is taken.
func (j *Judge) Rates(rate uint64) (slower [maxSlower]uint64, each [maxSlower]uint32) {
	if j == nil {
		return slower, each
	}
	return j.rules.slower(), j.rules.oneIn(rate)
}

// Begin tells the kernel side about the processes that run now. Otherwise, it would take samples of
// each before it could judge.
func (j *Judge) Begin() error {
	if j == nil {
		return nil
	}
	before, err := j.tasks()
	if err != nil {
		return err
	}
	now, paths, tried := monotonic.Now(), map[bpf.RulesRuleTask]string{}, map[uint64]bool{}
	for _, task := range before {
		if j.rules.tests(kindGroup) {
			key := task.Cgroup
			if j.byImage {
				key = task.Image
			}
			j.ask(key, j.owners.Of(int(task.Tgid), task.Image, task.Cgroup, now))
		}
		if j.rules.tests(kindProgram) && !tried[task.Program] {
			path, err := procfs.Executable(int(task.Tgid))
			tried[task.Program] = err == nil // otherwise it has exited
			paths[task] = path
		}
	}
	for _, member := range j.groups {
		member.Place() // waits, within limits
	}
	j.Poll()
	if len(paths) == 0 {
		return nil
	}
	// A process may have exited or executed another program meanwhile.
	after, err := j.tasks()
	if err != nil {
		return err
	}
	for _, task := range after {
		j.foundProgram(task.Program, paths[task])
	}
	return nil
}

// tasks returns the running processes.
func (j *Judge) tasks() (all []bpf.RulesRuleTask, err error) {
	l, err := link.AttachIter(link.IterOptions{Program: j.loaded.Programs[bpf.RulesProgRulesTasks]})
	if err != nil {
		return nil, fmt.Errorf("list the processes for rules: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	r, err := l.Open()
	if err != nil {
		return nil, fmt.Errorf("list the processes for rules: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("list the processes for rules: %w", err)
	}
	all = make([]bpf.RulesRuleTask, len(b)/binary.Size(bpf.RulesRuleTask{}))
	if err := binary.Read(bytes.NewReader(b), binary.NativeEndian, all); err != nil {
		return nil, fmt.Errorf("list the processes for rules: %w", err)
	}
	return all, nil
}

// Created tells the kernel side about a new cgroup.
func (j *Judge) Created(cgroup uint64, member *containers.Membership) {
	if j != nil && j.rules.tests(kindGroup) && !j.byImage {
		j.ask(cgroup, member)
	}
}

// ask notes that the kernel side does not know a group.
func (j *Judge) ask(key uint64, member *containers.Membership) {
	if _, known := j.groups[key]; !known && key != 0 && member != nil && len(j.groups) < maxGroups {
		j.groups[key] = member
	}
}

// foundProgram tells the kernel side the rules that match a program. path is its path, "" if unknown.
func (j *Judge) foundProgram(key uint64, path string) {
	if key == 0 || path == "" {
		return
	}
	if len(j.programs) >= maxPrograms {
		clear(j.programs)
	}
	j.programs[key] = j.rules.ofProgram(path)
	j.tell(bpf.RulesMapRulesPrograms, key, j.programs[key])
}

// Consider returns the rules that may match a process, about which the kernel side could not decide,
// by what is known of its program. [Judge.Leaves] decides when its place is known. at is the time of
// the sample (CLOCK_MONOTONIC ns).
func (j *Judge) Consider(m bpf.RuleMatch, pid int, at uint64, member *containers.Membership) (may uint64) {
	may = m.Rules
	if m.Program != 0 {
		matched, known := j.programs[m.Program]
		switch {
		case known: // the kernel side may have dropped it
			j.tell(bpf.RulesMapRulesPrograms, m.Program, matched)
		default:
			j.foundProgram(m.Program, j.program(pid, at))
			if matched, known = j.programs[m.Program]; !known {
				matched = j.rules.unknown(kindProgram)
			}
		}
		may &= uint64(matched)
	}
	if m.Group != 0 {
		j.ask(m.Group, member)
	}
	return may
}

// Leaves reports whether the rules leave out a process, given the rules that [Judge.Consider]
// returned. It waits, within limits, until the place of the process is known. It is safe for
// concurrent use.
func (j *Judge) Leaves(may uint64, member *containers.Membership) bool {
	matched := set(may)
	if j.rules.tests(kindGroup) {
		matched &= j.rules.ofGroup(member.Place())
	}
	return j.rules.leaves(matched)
}

// Poll tells the kernel side about groups whose place has become known.
func (j *Judge) Poll() {
	if j == nil {
		return
	}
	for key, member := range j.groups {
		if !member.Ready() {
			continue
		}
		if place := member.Place(); !place.Doubtful || !j.rules.testContainers() {
			delete(j.groups, key)
			j.tell(bpf.RulesMapRulesGroups, key, j.rules.ofGroup(place))
		}
	}
}

// LeavesProcess reports whether the rules leave out a running process as it is now. Unlike the kernel
// side, it may be wrong about a process that has just changed.
func (j *Judge) LeavesProcess(pid int) bool {
	if j == nil {
		return false
	}
	matched := ^set(0)
	if j.rules.tests(kindUser) {
		status, err := procfs.Process(pid).Status()
		if err != nil {
			return false
		}
		matched &= j.rules.ofUser(status.UIDs[1])
	}
	if j.rules.tests(kindProgram) {
		path, err := procfs.Executable(pid)
		if err != nil {
			return false
		}
		matched &= j.rules.ofProgram(path)
	}
	if j.rules.tests(kindGroup) {
		at, err := procfs.Process(pid).Memberships()
		if err != nil {
			return false
		}
		matched &= j.rules.ofGroup(j.owners.PlaceOf(at))
	}
	return j.rules.leaves(matched)
}

// Close stops following processes, and frees the tables. j may be nil.
func (j *Judge) Close() error {
	if j == nil {
		return nil
	}
	var errs []error
	for _, l := range slices.Backward(j.links) {
		errs = append(errs, l.Close())
	}
	if j.loaded != nil {
		j.loaded.Close()
	}
	return errors.Join(errs...)
}
