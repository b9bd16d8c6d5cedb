package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"

	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/perfring"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/rules"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stopping"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/containers"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/process"
	"fulgur/internal/process/otelcontext"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// run is a measurement in progress. It implements [loop.Measurement] for its loop.
type run struct {
	subject source.Subject
	options *Options
	finder  *debugfile.Finder
	sources []source.Source
	gate    *probe.Gate // of all sources; nil if there are none
	store   *stacks.Store
	loop    loop.Loop
	tracker process.Tracker // of processes and their mappings

	// pipeline and queue take the samples to their destination while the run goes on. Both are nil
	// for a [UserSampling], which reads its samples at the end.
	pipeline pipeline
	queue    *queue

	unkept    *uint64                               // see [stacks.Store.Unkept]; nil until sampling starts
	recorder  *recorder                             // nil unless times are recorded
	sampled   chan struct{}                         // closed at the end of sampling; nil means never
	ended     uint64                                // end of sampling, CLOCK_MONOTONIC in ns
	tidied    uint64                                // when it was last tidied up, likewise
	forgot    uint64                                // when ended processes were last forgotten, likewise
	closing   uint64                                // end of the window that is being closed, likewise; 0 if there is none
	owners    *containers.Tracker                   // nil unless asked for
	keys      *otelcontext.Keys                     // nil unless labels are asked for
	hosted    func(pid int, f *process.File) string // see [stacks.Store.Language]; nil unless stacks are native only
	judge     *rules.Judge                          // nil without rules
	unwinder  unwinding.Unwinder
	snapshots unwinding.Snapshots
	walked    *perfring.Source  // nil with BPF programs
	stops     *stopping.Sampler // nil unless threads are stopped to sample them
	children  *childWatch

	// event handles event records, nil if there are none.
	event    func(source int, record []byte) error
	remapped map[int]bool // processes whose address space changed
	// followsFiles is set if a source follows the target's files. mapped are the processes that
	// mapped files since the last poll, whether or not they belong to the target.
	followsFiles bool
	mapped       map[int]bool
}

// newRun loads the kernel side and opens everything, with sampling not yet
// enabled. The sideband starts before the events, so that no mapping is missed.
// Times are recorded if both the format and the subject support them.
func newRun(what source.Subject, o *Options, finder *debugfile.Finder) (_ *run, err error) {
	r := &run{subject: what, options: o, finder: finder, remapped: map[int]bool{}, mapped: map[int]bool{}}
	r.loop = loop.Loop{Target: o.Target, Limit: o.Duration, Delay: o.Delay, Rest: loop.PollAtMost, Settle: r.settle, Enough: r.enough}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.children = newChildWatch(o.Target)
	r.tracker.HandleRecord = r.handleRecord
	if o.wantsOwners() {
		if r.owners, err = containers.NewTracker(); err != nil {
			return nil, err
		}
	}
	load := r.loadBPF
	switch o.Via {
	case viaPerf:
		load = r.loadPerf
	case viaPtrace:
		load = r.loadStops
	}
	if err := load(); err != nil {
		return nil, err
	}
	r.unwinder.Ahead = slices.ContainsFunc(r.sources, func(s source.Source) bool {
		_, rewalks := s.(source.Rewalker)
		return !rewalks
	})
	r.tracker.Processes.OnReplaced(func(pid int) { r.remapped[pid] = true })
	r.store = r.newStore()
	r.unkept = r.store.Unkept
	if r.recorder != nil {
		r.recorder.connect(r.sources, r.store, int(cmp.Or(o.StackNodes, DefaultStackNodes)))
		r.event = r.recorder.handleEvent
	}
	if err := source.Each(r.sources, func(s source.Source) error { return s.Attach(o.Target) }); err != nil {
		return nil, err
	}
	if err := r.prepareTables(r.Targets); err != nil {
		return nil, err
	}
	if err := r.passTargetFiles(); err != nil {
		return nil, err
	}
	if r.recorder != nil {
		if err := r.addThreads(); err != nil {
			return nil, err
		}
	}
	r.unwinder.Wait(o.Target.Scope)
	slog.Debug("attached", "target", o.Target.String(), "sources", len(r.sources), "unwindTables", r.unwinder.HasTables(), "mapBytes", r.mapMemory())
	return r, nil
}

// loadBPF loads the unwind tables and the BPF programs of the subject, and starts to listen to all processes.
func (r *run) loadBPF() error {
	o := r.options
	cgroup, err := target.OpenCgroup(o.Target)
	if err != nil {
		return err
	}
	defer cgroup.Close()
	types := btf.NewCache() // shared, because parsing the kernel's BTF is slow
	if err := r.unwinder.Load(o.unwind(), r.finder, types); err != nil {
		return err
	}
	r.snapshots = r.unwinder.Snapshots()
	if r.gate, err = probe.NewGate(); err != nil {
		return err
	}
	common := o.probe(cgroup, &r.unwinder, types)
	common.Gate = r.gate
	if o.wantsLabels() {
		common.Labels, common.LabelKey = r.unwinder.HasTables(), o.onlyLabel()
		r.keys = otelcontext.NewKeys()
		r.unwinder.Runtimes.ReadLabels(r.keys.Expect)
	}
	if common.Timeline, err = r.startRecorder(); err != nil {
		return err
	}
	common.ByCgroup, r.tracker.Cgroups = r.owners != nil, r.owners != nil
	if err := r.tracker.Listen(o.Target.PIDs); err != nil {
		return err
	}
	r.tracker.Processes.OnMapped(r.noteMapped)
	if r.judge, err = rules.New(o.Rules, r.owners, r.tracker.Processes.Program, types); err != nil {
		return err
	}
	common.Rules = r.judge
	if r.judge != nil {
		r.unwinder.Leaves = r.judge.LeavesProcess
	}
	// Start early: what runtimes need is made while the programs load.
	if err := r.prepareTables(nil); err != nil {
		return err
	}
	if r.sources, err = r.subject.Load(common); err != nil {
		return fmt.Errorf("load the BPF programs: %w", err)
	}
	return r.judge.Begin()
}

// startRecorder starts a recording if the subject and the output have times, and reports whether they do.
func (r *run) startRecorder() (bool, error) {
	as, ok := r.subject.Times()
	if !ok || !r.options.hasTimes() {
		return false, nil
	}
	recorder, err := newRecorder(as, r.options.UserOnly)
	if err != nil {
		return false, err
	}
	r.recorder = recorder
	return true, nil
}

// handleRecord handles a sideband record.
func (r *run) handleRecord(record perfevent.Record) {
	r.unwinder.HandleRecord(record)
	r.children.handleRecord(record)
	r.recorder.handleRecord(record)
	if created, ok := record.(perfevent.Cgroup); ok && r.owners != nil {
		r.judge.Created(created.ID, r.owners.Created(created.ID, created.Path))
	}
}

// noteMapped notes that a process has mapped a file.
func (r *run) noteMapped(pid int) {
	r.unwinder.Mapped(pid)
	if r.followsFiles {
		r.mapped[pid] = true
	}
}

// newStore returns a store of stacks with what the options ask for.
func (r *run) newStore() *stacks.Store {
	store := stacks.NewStore(r.tracker.Processes)
	store.Owners = r.owners
	if r.unwinder.Runtimes != nil {
		store.Readers, store.Language, store.Omits = r.unwinder.Runtimes.Reader, r.unwinder.Runtimes.Language, r.unwinder.Runtimes.Omits
	}
	if r.hosted != nil {
		store.Language, store.NativeOnly = r.hosted, true
	}
	if r.walked != nil {
		store.KernelName = r.walked.KernelName
	}
	if r.keys != nil {
		store.Keys = r.keys.Of
	}
	if r.judge != nil {
		store.Judge = r.judge.Consider
	}
	if r.options.Interpreters == interpretersOnly {
		store.Hides = r.unwinder.Runtimes.Has
	}
	return store
}

// addThreads adds the target's threads to the recording.
func (r *run) addThreads() error {
	pids, err := target.Measured(r.options.Target, r.Targets)
	if err != nil {
		return err
	}
	return r.recorder.threads.AddCurrent(pids)
}

// prepareTables starts making unwind tables for the processes of the target. members lists the
// processes in the target set; nil if there is no set yet.
func (r *run) prepareTables(members func() ([]int, error)) error {
	if !r.unwinder.HasTables() {
		return nil
	}
	pids, err := target.Measured(r.options.Target, members)
	if err != nil {
		return err
	}
	return r.unwinder.Prepare(r.tracker.Processes, pids, r.options.Target.Scope == target.Command)
}

// settle frees memory that only the start needs.
func (r *run) settle() {
	for _, s := range r.sources {
		s.Settle()
	}
}

func (r *run) close() error {
	var committed error
	if r.pipeline != nil {
		committed = r.pipeline.close()
	}
	return errors.Join(committed, r.tracker.StopListening(), r.unwinder.Close(), source.Each(r.sources, source.Source.Close), r.judge.Close(), r.gate.Close(), r.recorder.close(), r.owners.Close())
}

// probe returns the options of a family of probes. c is the open cgroup if the
// target is one; u has the unwind tables.
func (o *Options) probe(c target.OpenedCgroup, u *unwinding.Unwinder, types *btf.Cache) probe.Options {
	tables := u.Replacements()
	return probe.Options{
		Unwind:       u.By,
		Tables:       tables,
		Snapshots:    tables != nil,
		Types:        types,
		MaxDepth:     o.MaxDepth,
		SkipUser:     o.KernelOnly,
		SkipKernel:   o.UserOnly,
		SkipRuntimes: u.Runtimes == nil,
		ByThread:     o.PerThread,
		ByCPU:        o.PerCPU,
		FromStart:    o.Target.Scope == target.Command && o.Delay == 0,
		Scope:        o.Target.Scope,
		Cgroup:       c.FD,
		CgroupID:     c.ID,
		RingSize:     o.RingSize,
		CountEntries: o.CountEntries,
		SeenEntries:  o.SeenEntries,
	}
}

// symbolize returns the options of symbolization.
func (o *Options) symbolize() symbolize.Options {
	return symbolize.Options{NoDemangle: o.NoDemangle, ShortNames: o.ShortNames, NoInlines: o.NoInlines}
}

// count moves the drained counts into the store, and returns the counts without
// a trace.
func (r *run) count() map[stacks.Key]stacks.Values {
	lost := map[stacks.Key]stacks.Values{}
	for _, s := range r.sources {
		total := s.Counts().Take()
		r.store.Count(total)
		maps.Copy(lost, total)
	}
	if r.recorder != nil {
		maps.Copy(lost, r.recorder.count())
	}
	return lost
}

// namingContext returns the context of the lookup of names after sampling, which the user's next
// interrupt cancels. This is ctx, unless an interrupt has canceled ctx and so ended sampling.
func (r *run) namingContext(ctx context.Context) (naming context.Context, stop func()) {
	if !r.loop.Interrupted {
		return ctx, func() {}
	}
	ctx = context.WithoutCancel(ctx)
	if r.options.Interruptible == nil {
		return ctx, func() {}
	}
	return r.options.Interruptible(ctx)
}

// untilInterrupt calls write with a context that the user's next interrupt cancels. While sampling goes
// on, the next interrupt ends sampling, and only the one after that cancels the context.
func (r *run) untilInterrupt(write func(context.Context) error) error {
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	if r.options.Interruptible == nil {
		return write(ctx)
	}
	listen := func() (stop func()) {
		again, stop := r.options.Interruptible(ctx)
		context.AfterFunc(again, giveUp)
		return stop
	}
	select {
	case <-r.sampled:
		defer listen()()
	default:
		var waiting sync.WaitGroup
		waiting.Go(func() {
			select {
			case <-r.sampled:
				defer listen()()
				<-ctx.Done()
			case <-ctx.Done():
			}
		})
		defer waiting.Wait()
		defer giveUp()
	}
	return write(ctx)
}

// stats sums the kernel side's counters.
func (r *run) stats() (sum probe.Stats, err error) {
	err = source.Each(r.sources, func(s source.Source) error {
		one, err := s.Stats()
		sum.Samples += one.Samples
		sum.Excluded += one.Excluded
		sum.ExcludedPeriods += one.ExcludedPeriods
		sum.Thinned += one.Thinned
		sum.Losses = sum.Losses.Plus(one.Losses)
		return err
	})
	return sum, err
}

// losses returns what was not recorded so far, and what rules excluded on the kernel side.
func (r *run) losses() (profile.Losses, Excluded, error) {
	stats, err := r.stats()
	stats.Losses[profile.LossSideband] = r.tracker.Lost
	stats.Losses[profile.LossProcessesGone] = r.tracker.Processes.Gone()
	r.unwinder.Losses(&stats.Losses)
	return stats.Losses, Excluded{stats.Excluded, time.Duration(stats.ExcludedPeriods), stats.Thinned}, err
}
