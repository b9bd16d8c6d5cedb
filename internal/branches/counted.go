package branches

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/cfg"
	"fulgur/internal/branches/inference"
	"fulgur/internal/branches/jumps"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/symbols/elffile"
)

// countedFor is the default duration of counting.
const countedFor = time.Minute

// counted records by counting jumps, which does not yield branch stacks: the traces are
// estimated at the end.
type counted struct {
	options jumps.Options
	run     *branchRun
	binary  *bolt.Binary
	file    *elffile.File
	program *cfg.Program
	counter *jumps.Counter
	inode   uint64 // of the binary

	drained time.Time
	samples map[uint64]uint64 // by link-time address
	outside uint64            // samples of other code
	crowded uint64            // samples at addresses beyond maxSampled

	mu     sync.Mutex
	places []place        // of the binary, the latest first
	biases map[int]uint64 // of more processes, at most maxBiases

	stopped  bool
	finished bool
	// uncountable is the share of the branches that nothing can count, when finished.
	uncountable float64
}

// place is a process's mapping of the binary.
type place struct {
	pid  int
	bias uint64 // address in memory minus link-time address
}

// maxPlaces is the number of processes that are remembered for comparing their code with
// the file, and maxBiases the number of those in which breakpoints may count. maxSampled
// bounds the distinct addresses of samples.
const maxPlaces, maxBiases, maxSampled = 16, 4096, 1 << 20

func newCounted(o *Options, by jumps.Probes) *counted {
	c := &counted{options: jumps.Options{Probes: by, MaxOverhead: o.MaxOverhead, MaxStall: o.MaxStall}, samples: map[uint64]uint64{}, biases: map[int]uint64{}}
	if c.options.MaxOverhead == 0 {
		c.options.MaxOverhead = jumps.DefaultOverhead
		if len(o.Command) > 0 {
			c.options.MaxOverhead = jumps.CommandOverhead
		}
	}
	c.options.MaxStall = cmp.Or(o.MaxStall, jumps.DefaultStall)
	c.options.Frequency = cmp.Or(o.Frequency, jumps.DefaultFrequency)
	return c
}

func (c *counted) String() string {
	by := "uprobes"
	if c.options.Probes == jumps.Breakpoints {
		by = "hardware breakpoints"
	}
	return fmt.Sprintf("counting jumps with %s, a few at a time, aiming at no more than %s overhead", by, percent(c.options.MaxOverhead))
}

// percent formats a share.
func percent(share float64) string {
	return strconv.FormatFloat(math.Round(1e4*share)/1e2, 'f', -1, 64) + " %"
}

func (c *counted) attach(r *branchRun) (err error) {
	c.run, c.binary = r, r.binaries.only
	if c.file, err = r.binaries.open(c.binary); err != nil {
		return err
	}
	if c.program, err = cfg.New(c.file); err != nil {
		return fmt.Errorf("%w: %w", jumps.ErrUnsupported, err)
	}
	c.options.Target = r.loop.Target
	c.options.Program = c.program
	c.options.File = r.binaries.chosen
	st, err := r.binaries.chosen.Now()
	if err != nil {
		return err
	}
	c.inode = st.Ino
	c.options.Offset = c.file.Offset
	c.options.Bias, c.options.Compare = c.bias, c.compare
	c.counter, err = jumps.New(c.options)
	return err
}

func (c *counted) end(r *branchRun) { r.loop.Limit = countedFor }

func (c *counted) enable() error { return c.counter.Start() }

func (c *counted) disable() error {
	if c.counter == nil || c.stopped {
		return nil
	}
	c.stopped = true
	return c.counter.Stop()
}

func (c *counted) targets() ([]int, error)       { return c.counter.Targets() }
func (c *counted) fds() []int                    { return nil }
func (c *counted) followCPUs(online []int) error { return c.counter.FollowCPUs(online) }
func (c *counted) mark() (fill float64)          { return 0 }
func (c *counted) tend() error {
	if c.stopped {
		return nil
	}
	return c.counter.Err()
}

// fewWindows is the number of windows per jump below which a profile is not sufficient. The
// outcomes of sqlite's jumps were off by 1.4 % after that many, on average.
const fewWindows = 2

// drainEvery is the time between readings of the samples.
const drainEvery = 100 * time.Millisecond

// read reads the samples of the instruction pointer, which lead to jumps to count. After
// the end it adds the profile.
func (c *counted) read(func(bolt.Sample) error) error {
	if !c.stopped && time.Since(c.drained) < drainEvery {
		return nil
	}
	c.drained = time.Now()
	now := monotonic.Now()
	err := c.counter.Samples(func(pid int, ip, n uint64) {
		c.run.binaries.collector.AddSamples(n)
		layout := c.run.spaces.layout(bolt.Sample{PID: pid, Time: now, Entries: []bolt.Entry{{From: ip, To: ip}}})
		region, ok := layout.Find(ip)
		if !ok || region.Binary != c.binary {
			c.outside += n
			return
		}
		addr := region.Address(ip)
		c.note(place{pid, ip - addr})
		if c.sampled(addr, n) {
			c.counter.Sampled(addr)
		}
	})
	if err != nil || !c.stopped || c.finished {
		return err
	}
	c.finished = true
	return c.finish()
}

// sampled counts n samples at a link-time address. It reports whether the address is new.
func (c *counted) sampled(addr, n uint64) bool {
	before := c.samples[addr]
	if before == 0 && len(c.samples) >= maxSampled {
		c.crowded += n
		return false
	}
	c.samples[addr] = before + n
	return before == 0
}

// note remembers where a process has mapped the binary.
func (c *counted) note(p place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.places) > 0 && c.places[0] == p {
		return
	}
	if len(c.biases) >= maxBiases { // most have exited
		clear(c.biases)
	}
	c.biases[p.pid] = p.bias
	c.places = slices.DeleteFunc(c.places, func(o place) bool { return o.pid == p.pid })
	c.places = slices.Insert(c.places, 0, p)
	c.places = c.places[:min(len(c.places), maxPlaces)]
}

// bias returns where a process has mapped the binary.
func (c *counted) bias(pid int) (bias uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bias, ok = c.biases[pid]
	return bias, ok
}

// forget forgets a process that no longer maps the binary at p.
func (c *counted) forget(p place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places = slices.DeleteFunc(c.places, func(o place) bool { return o == p })
	if c.biases[p.pid] == p.bias {
		delete(c.biases, p.pid)
	}
}

// maps reports whether a process maps the binary at an address.
func (c *counted) maps(pid int, addr uint64) bool {
	maps, err := process.Read(nil, pid, procfs.Task.Maps)
	if err != nil {
		return false
	}
	i := slices.IndexFunc(maps, func(m procfs.Map) bool { return addr >= m.Start && addr < m.Limit })
	return i >= 0 && maps[i].Ino == c.inode
}

// compare compares code in the memory of the processes with the file's.
func (c *counted) compare(addr uint64, code []byte) (same, known bool) {
	c.mu.Lock()
	places := slices.Clone(c.places)
	c.mu.Unlock()
	b := make([]byte, len(code))
	for _, p := range places {
		if process.NewMemory(p.pid, safeopen.NewBudget()).Read(b, addr+p.bias) != nil {
			c.forget(p) // it has exited
			continue
		}
		if !bytes.Equal(b, code) {
			if c.maps(p.pid, addr+p.bias) {
				return false, true
			}
			c.forget(p) // it has executed another program, or unloaded the library
			continue
		}
		known = true
	}
	return known, known
}

// finish estimates the profile and adds it.
func (c *counted) finish() error {
	counts := c.counter.Counts()
	e := inference.Evidence{
		Jumps: map[uint64]inference.Jump{}, Targets: map[uint64]map[uint64]uint64{}, Samples: c.samples, Uncountable: c.counter.Uncountable(),
		Seconds: c.run.loop.Duration.Seconds(), SampleSeconds: 1 / float64(c.options.Frequency),
	}
	for i, r := range counts.Rates() {
		j := counts.Jumps[i]
		e.Jumps[j.Address] = inference.Jump{Rate: r.PerSecond, Error: r.Error, Counted: r.Seconds, Hits: j.Hits, Taken: j.Taken}
	}
	for t, n := range counts.Targets {
		if e.Targets[t.From] == nil {
			e.Targets[t.From] = map[uint64]uint64{}
		}
		e.Targets[t.From][t.To] += n
	}
	var err error
	c.uncountable, err = inference.Traces(c.program, e, func(t bolt.Trace) error {
		return c.run.binaries.collector.AddTrace(c.binary, t)
	})
	return err
}

func (c *counted) progress() string {
	s, err := c.counter.Stats()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s of %s", plain.Count(s.Outcomes, "outcome"), plain.Count(s.Jumps, "jump"))
}

func (c *counted) report(report *report) error {
	s, err := c.counter.Stats()
	if err != nil {
		return err
	}
	report.Counting = newCountingReport(s, c.options.MaxStall)
	report.Counting.RefusedShare = c.uncountable
	left := c.program.LeftOut()
	for f, why := range left {
		report.Counting.LeftOut = append(report.Counting.LeftOut, leftOutFunction{c.program.Name(f), why})
	}
	slices.SortFunc(report.Counting.LeftOut, func(a, b leftOutFunction) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Reason, b.Reason))
	})
	report.lost("samples and targets of jumps lost: the tables were full", s.Lost)
	report.lost("samples lost: there were too many addresses", c.crowded)
	if s.Unanswered {
		report.lost("window lost: the kernel did not attach or detach probes in time, and nothing was counted after that; a file system may not respond", 1)
	}
	report.leftOut("jumps beyond the limit", s.Crowded)
	report.leftOut("outcomes of indirect jumps to targets beyond the limit", s.CrowdedTargets)
	report.leftOut("windows while a process was traced, as by a debugger", s.Traced)
	report.leftOut("jumps in windows: their code in memory differed from the file", s.Changed)
	if s.Abandoned {
		report.warn("a debugger attached while probes were in the target, and is still there: it may take a probe for a breakpoint of the program; kill the target before you detach it, or expect a SIGTRAP")
	}
	inside := uint64(0)
	for addr, n := range c.samples {
		inside += n
		if c.program.Function(addr) == nil {
			report.Counting.UncountedShare += float64(n)
		}
	}
	report.located = inside+c.outside > 0
	if inside > 0 {
		report.InsideShare = float64(inside) / float64(inside+c.outside)
		report.Counting.UncountedShare /= float64(inside)
	}
	if mean := float64(report.Counting.counted) / float64(max(s.Jumps-s.Refused, 1)); s.Outcomes > 0 && mean < fewWindows {
		report.warn("not sufficient for a good profile: a jump was counted in %.1f windows on average; measure %s times as long, or merge as many profiles", mean, twoDigits(max(fewWindows/mean, 1.1)))
	}
	if report.Samples > 0 && s.Outcomes == 0 {
		why := "no jump was executed in a window: measure longer"
		switch b := s.Breakpoints; {
		case b.Windows == 0 && b.Taken > 0:
			why = "other tools used all hardware breakpoints"
		case b.Gone > b.Windows:
			why = "most threads had exited before a window: measure longer"
		}
		if inside == 0 {
			why = fmt.Sprintf("no sample is in the file; the work may be in a library (choose it with %s), or in a copy of the file", usage.Binary)
		}
		report.warn("nothing was counted: %s", why)
	}
	if s.Measured && s.Overhead > 1.5*c.options.MaxOverhead {
		report.warn("the target lost %s of its progress, more than %s allows (%s)", percent(s.Overhead), usage.MaxOverhead, percent(c.options.MaxOverhead))
	}
	return nil
}

func (c *counted) close() error {
	var errs []error
	if c.counter != nil {
		errs = append(errs, c.disable(), c.counter.Close())
	}
	if c.file != nil {
		errs = append(errs, c.file.Close())
	}
	return errors.Join(errs...)
}
