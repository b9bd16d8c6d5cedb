package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"fulgur/internal/atomicfile"
	"fulgur/internal/debugfile"
	"fulgur/internal/doctor"
	"fulgur/internal/encode/plain"
	"fulgur/internal/perfevent"
	"fulgur/internal/profile"
	"fulgur/internal/source/oncpu"
	"fulgur/internal/stacks"
	"fulgur/internal/symbolize"
	"fulgur/internal/target"
)

// gcPercent trades a little CPU for memory: what a run keeps, stacks and
// counts, grows slowly, so collecting early costs little.
const gcPercent = 40

// Profile samples what runs on the processors and writes what it saw. It ends
// at the duration's end, with ctx, or with the target; what was seen is
// written in each case. The exit code is that of o.Command where one was
// launched and ran, else 0, or 1 with an error.
func Profile(ctx context.Context, o Options) (exitCode int, err error) {
	debug.SetGCPercent(gcPercent)
	if err := o.complete(); err != nil {
		return 2, err
	}
	format, err := chooseFormat(&o)
	if err != nil {
		return 2, err
	}
	specs, err := o.specs()
	if err != nil {
		return 2, err
	}
	finder, err := debugfile.New(debugfile.Config{Root: o.Symfs})
	if err != nil {
		return 2, usagef("%v", err)
	}
	if err := checkPrivileges(doctor.Profile, o.Stderr, o.Quiet); err != nil {
		return 1, err
	}
	if len(specs) == 0 {
		if specs, err = o.defaultSpecs(); err != nil {
			return 1, err
		}
	}
	if err := target.Check(o.Target); err != nil {
		return 1, err
	}
	out, err := createOutput(o.Output, o.Stdout)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()

	launched, err := launch(o.Command, &o.Target)
	if err != nil {
		return 1, err
	}
	err = take(ctx, &o, specs, finder, launched, func(p *profile.Profile) error { return encode(out, format, p, &o) })
	switch {
	case launched != nil:
		return await(ctx, launched, err, o.Stderr, o.Quiet)
	case err != nil:
		return 1, err
	}
	return 0, nil
}

// take measures, writes the profile and sums it up.
func take(ctx context.Context, o *Options, specs []perfevent.Spec, finder *debugfile.Finder, launched *target.Launched, write func(*profile.Profile) error) (err error) {
	r, err := attach(o, specs, finder)
	if err != nil {
		return doctor.Explain(err, "profile "+o.Target.String())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.sample(ctx, launched); err != nil {
		return err
	}
	p, err := r.profile(ctx)
	if err != nil {
		return err
	}
	if err := write(p); err != nil {
		return err
	}
	return r.summarize(p)
}

// createOutput opens the output at path, "-" or none being stdout. It is called
// before anything is measured, so that an output that cannot be written fails
// at once.
func createOutput(path string, stdout io.Writer) (output, error) {
	if path == "" || path == "-" {
		return stream{w: stdout}, nil
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err // and not a nil *File, which were an output
	}
	return f, nil
}

// launch starts the command, if there is one, and makes it the target t. It
// stands before its first instruction.
func launch(argv []string, t *target.Target) (*target.Launched, error) {
	if len(argv) == 0 {
		return nil, nil
	}
	launched, err := target.Start(argv)
	if err != nil {
		return nil, err
	}
	t.Scope = target.Command
	t.PIDs = []int{launched.PID()}
	t.Children = true
	return launched, nil
}

// run is a profile being taken.
type run struct {
	options *Options
	specs   []perfevent.Spec
	finder  *debugfile.Finder
	source  *oncpu.Source
	store   *stacks.Store
	witness
	loop
	unwinder unwinder

	remapped map[int]bool // processes whose addresses changed their meaning
	names    *names       // nil before code was named
}

// attach loads the kernel side and opens everything, with sampling not yet
// enabled. The sideband comes before the events, so that no mapping is missed.
func attach(o *Options, specs []perfevent.Spec, finder *debugfile.Finder) (_ *run, err error) {
	r := &run{options: o, specs: specs, finder: finder, remapped: map[int]bool{}}
	r.loop = loop{target: o.Target, limit: o.Duration, delay: o.Delay, rest: pollAtMost}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	cgroup, closeCgroup, err := openCgroup(o.Target)
	if err != nil {
		return nil, err
	}
	defer closeCgroup()
	types := btf.NewCache() // one, because decoding the kernel's takes long
	if err := r.unwinder.load(o, types); err != nil {
		return nil, err
	}
	r.heed = r.unwinder.heed
	if err := r.listen(o.Target.PIDs); err != nil {
		return nil, err
	}
	r.processes.OnMapped(r.unwinder.mapped)
	// Early, since tables are made while the program is loaded.
	if err := r.expect(nil); err != nil {
		return nil, err
	}
	if r.source, err = oncpu.Load(oncpu.Options{
		Unwind:       r.unwinder.by,
		Tables:       r.unwinder.replacements(),
		Types:        types,
		MaxDepth:     o.MaxDepth,
		SkipKernel:   o.UserOnly,
		SkipUser:     o.KernelOnly,
		Idle:         o.Idle,
		ByThread:     o.PerThread,
		ByCPU:        o.PerCPU,
		Scope:        o.Target.Scope,
		Cgroup:       cgroup,
		RingSize:     o.RingSize,
		CountEntries: o.CountEntries,
		SeenEntries:  o.SeenEntries,
	}); err != nil {
		return nil, fmt.Errorf("load the on-CPU program: %w", err)
	}
	r.processes.OnReplaced(func(pid int) { r.remapped[pid] = true })
	r.store = stacks.NewStore(r.processes)
	if err := r.source.Attach(o.Target, specs, oncpu.Rate{Frequency: o.Frequency, Period: o.Period}); err != nil {
		return nil, err
	}
	if err := r.expect(r.source.Targets); err != nil {
		return nil, err
	}
	r.unwinder.wait(o.Target.Scope)
	return r, nil
}

// expect has unwind tables made of what is known to be measured; members are those
// of the target set, if there is one yet.
func (r *run) expect(members func() ([]int, error)) error {
	if r.unwinder.loader == nil {
		return nil
	}
	pids, err := measured(r.options.Target, members)
	if err != nil {
		return err
	}
	return r.unwinder.expect(r.processes, pids, r.options.Target.Scope == target.Command)
}

// openCgroup returns a descriptor of the cgroup that t is, -1 if it is none, and
// how to close it.
func openCgroup(t target.Target) (fd int, closeFD func(), err error) {
	if t.Scope != target.Cgroup {
		return -1, func() {}, nil
	}
	fd, err = unix.Open(t.CgroupPath, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil, fmt.Errorf("open cgroup %s: %w", t.CgroupPath, err)
	}
	return fd, func() { _ = unix.Close(fd) }, nil
}

func (r *run) close() error {
	err := errors.Join(r.witness.close(), r.unwinder.close())
	if r.source != nil {
		err = errors.Join(err, r.source.Close())
	}
	return err
}

// profile names everything and builds the profile.
func (r *run) profile(ctx context.Context) (*profile.Profile, error) {
	losses, err := r.losses()
	if err != nil {
		return nil, err
	}
	r.store.Count(r.source.Counts().Total())
	r.store.Seal()
	r.processes.FinishPerfMaps()
	r.names = newNames(r.store, r.finder, symbolize.Options{
		NoDemangle: r.options.NoDemangle,
		ShortNames: r.options.ShortNames,
		NoInlines:  r.options.NoInlines,
	})
	r.symbolize(ctx)
	if err := r.unwinder.problem(); err != nil && !r.options.Quiet {
		fmt.Fprintln(r.options.Stderr, "fulgur: unwind tables:", plain.Error(err))
	}
	if !r.options.Quiet {
		for _, w := range r.names.warnings() {
			fmt.Fprintln(r.options.Stderr, "fulgur:", w)
		}
	}
	return buildProfile(r.store, r.source.Counts().Total(), r.names, r.valueTypes(), r.meta(), losses), nil
}

// symbolize finds the names, and tells what is waited for if that takes long.
func (r *run) symbolize(ctx context.Context) {
	ctx, stop := r.naming(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.names.symbolize(ctx)
	}()
	select {
	case <-done:
		return
	case <-time.After(waitUnsaid):
	}
	if what := r.names.reading(); what != "" && !r.options.Quiet {
		fmt.Fprintf(r.options.Stderr, "fulgur: reading debug information of %s (Ctrl-C goes on without)\n", plain.Terminal(what))
	}
	<-done
}

// naming returns the context of the search for names. The first signal after
// sampling ends it: that is ctx's, unless a signal ended sampling.
func (r *run) naming(ctx context.Context) (naming context.Context, stop func()) {
	if !r.interrupted {
		return ctx, func() {}
	}
	ctx = context.WithoutCancel(ctx)
	if r.options.Interruptible == nil {
		return ctx, func() {}
	}
	return r.options.Interruptible(ctx)
}

func (r *run) losses() (profile.Losses, error) {
	stats, err := r.source.Stats()
	stats.Losses.Sideband = r.lost
	stats.Losses.ProcessesGone = r.processes.Gone()
	r.unwinder.losses(&stats.Losses)
	return stats.Losses, err
}

// valueTypes names the two values of a sample: how many there were, and the
// sum of their periods, which is time for clocks.
func (r *run) valueTypes() []profile.ValueType {
	weight := profile.ValueType{Type: r.specs[0].Name, Unit: "count"}
	if r.specs[0].IsTime() {
		weight = profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	}
	return []profile.ValueType{{Type: "samples", Unit: "count"}, weight}
}
