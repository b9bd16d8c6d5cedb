// Package agent measures for as long as it runs, and sends the profile of each window to a
// back end.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"fulgur/internal/export/delivery"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/spool"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/otlp"
	"fulgur/internal/profile/output"
	"fulgur/internal/session"
)

// Options configure an agent.
type Options struct {
	// Measure selects the target and the length of windows.
	Measure session.RecordOptions
	// BackEnd is the destination of profiles.
	BackEnd otlpclient.Config
	// Spool is the directory for profiles that wait, empty for memory only, and SpoolSize
	// its limit in bytes.
	Spool     string
	SpoolSize int64
	// Budget limits the agent's CPU time and memory.
	Budget Budget
	// Bolt says which programs get branch profiles.
	Bolt Bolt
	// Listen is the address of /healthz and /metrics, empty for none.
	Listen string
}

// Agent is a running agent.
type Agent struct {
	inUse    atomic.Pointer[Options]
	log      io.Writer
	delivery *delivery.Delivery
	governor *governor
	bolter   *bolter
	started  time.Time
	window   atomic.Int64 // when the last window ended, in ns since started
	windows  atomic.Uint64
	reloads  [2]atomic.Uint64 // that failed, that succeeded
	gap      time.Duration    // before this run
	losses   atomic.Pointer[profile.Losses]
	excluded atomic.Pointer[session.Excluded]
}

// Run measures and sends until ctx is done, or the measurement fails. load returns the
// configuration: once at the start and then for each value of reload. A configuration that
// is not valid changes nothing. log receives what an administrator should know.
func Run(ctx context.Context, load func() (Options, error), reload <-chan os.Signal, log io.Writer) (exitCode int, err error) {
	o, err := load()
	if err != nil {
		return 2, err
	}
	for _, dir := range []string{o.Spool, o.Bolt.Dir} {
		if err := output.Await(ctx, dir, log); err != nil {
			return 1, err
		}
	}
	a := &Agent{log: log, started: time.Now(), governor: newGovernor(o.Budget)}
	a.inUse.Store(&o)
	a.losses.Store(new(profile.Losses))
	a.excluded.Store(new(session.Excluded))
	a.bolter = newBolter(func() Bolt { return a.options().Bolt }, a.warn)
	if err := a.open(); err != nil {
		return 1, err
	}
	server, err := a.listen()
	if err != nil {
		_, closeErr := a.delivery.Close()
		return 1, errors.Join(err, closeErr)
	}
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		a.delivery.Run(sending)
	}()
	bolted := a.startBolter(ctx)
	exitCode, err = a.measure(ctx, load, reload)
	bolted()
	a.delivery.Finish(sent, stop)
	err = errors.Join(err, server.stop())
	final, closeErr := a.delivery.Close()
	a.conclude(final)
	return exitCode, errors.Join(err, closeErr)
}

// options returns the options in use.
func (a *Agent) options() Options { return *a.inUse.Load() }

// open opens the spool and begins the delivery.
func (a *Agent) open() error {
	store, found := spool.InMemory(), spool.Found{}
	if a.options().Spool != "" {
		var err error
		if store, found, err = spool.Open(a.options().Spool, a.options().SpoolSize); err != nil {
			return err
		}
	}
	a.warn(a.options().BackEnd.Warning())
	if found.Corrupt > 0 {
		a.warn(fmt.Sprintf("spool: set aside %s", plain.Count(uint64(found.Corrupt), "corrupt file")))
	}
	if found.Unreadable > 0 {
		a.warn(fmt.Sprintf("spool: cannot read %s of an earlier run; the next start tries again", plain.Count(uint64(found.Unreadable), "file")))
	}
	if found.Entries > 0 {
		a.warn(fmt.Sprintf("spool: %s of an earlier run will be sent", plain.Count(uint64(found.Entries), "window")))
	}
	if !found.Stopped.IsZero() {
		gap, text := gapUntil(a.started, found.Stopped)
		a.gap = gap
		a.warn("the last run ended without notice: " + text)
	}
	a.delivery = delivery.New(store, found, a.options().BackEnd, a.warn)
	return nil
}

// gapUntil returns the time without measurement between a run that was last alive at stopped, and
// one that started, and describes it.
func gapUntil(started, stopped time.Time) (gap time.Duration, text string) {
	if stopped.After(started) {
		return 0, "the clock was set back since, so it is not known how long nothing was measured"
	}
	return started.Sub(stopped), fmt.Sprintf("nothing was measured from %s to %s", stopped.Format(time.RFC3339), started.Format(time.RFC3339))
}

func (a *Agent) warn(text string) {
	if text != "" {
		fmt.Fprintln(a.log, "fulgur:", text)
	}
}

// outcome is the end of a measurement.
type outcome struct {
	code int
	err  error
}

// measure measures by one configuration after the other.
func (a *Agent) measure(ctx context.Context, load func() (Options, error), reload <-chan os.Signal) (exitCode int, err error) {
	var before *Options // to go back to if the new ones do not work
	for {
		running, stop := context.WithCancel(ctx)
		ended := make(chan outcome, 1)
		var began atomic.Bool
		go func() {
			o := a.options().Measure
			o.Limits = func() session.Limits {
				limits, _ := a.governor.limits()
				return limits
			}
			o.Ready = func() {
				began.Store(true)
				a.delivery.Begin()
				a.announce()
			}
			code, err := session.Run(running, &o.Options, o.Subject(), session.SinkFunc(a.add))
			ended <- outcome{code, err}
		}()
		end, next := a.await(load, reload, ended)
		stop()
		if next != nil {
			end = <-ended
		}
		switch {
		case ctx.Err() != nil:
			return end.code, end.err
		case end.err != nil && before != nil && !began.Load():
			a.warn(plain.Error(end.err) + "; going back to the configuration before")
			a.apply(*before)
			before = nil
		case end.err != nil || next == nil:
			return end.code, end.err
		default:
			old := a.options()
			before = &old
			a.apply(*next)
		}
	}
}

// await waits until the measurement has ended, or until a new configuration requires a new
// measurement.
func (a *Agent) await(load func() (Options, error), reload <-chan os.Signal, ended <-chan outcome) (outcome, *Options) {
	for {
		select {
		case end := <-ended:
			return end, nil
		case <-reload:
		}
		next, err := load()
		if err != nil {
			a.reloads[0].Add(1)
			a.warn("the configuration was not changed: " + plain.Error(err))
			continue
		}
		a.reloads[1].Add(1)
		if next.Spool != a.options().Spool || next.SpoolSize != a.options().SpoolSize || next.Listen != a.options().Listen {
			a.warn("a change of the spool or the address to listen on needs a restart")
		}
		if !sameMeasure(next.Measure, a.options().Measure) {
			return outcome{}, &next
		}
		a.apply(next)
	}
}

// apply takes over the parts of a configuration that can change.
func (a *Agent) apply(o Options) {
	now := a.options()
	bolts, backEnd := !reflect.DeepEqual(now.Bolt, o.Bolt), !reflect.DeepEqual(now.BackEnd, o.BackEnd)
	now.Measure, now.BackEnd, now.Budget, now.Bolt = o.Measure, o.BackEnd, o.Budget, o.Bolt
	a.inUse.Store(&now)
	if bolts {
		a.bolter.use()
	}
	a.warn(o.BackEnd.Warning())
	a.warn("using the new configuration")
	if backEnd { // if nothing changed, Use would needlessly repeat the request in flight
		a.delivery.Use(o.BackEnd)
	}
}

// sameMeasure reports whether two configurations measure the same.
func sameMeasure(a, b session.RecordOptions) bool {
	for _, o := range []*session.RecordOptions{&a, &b} { // functions and writers do not compare
		o.Stdout, o.Stderr, o.Interruptible, o.Ready, o.Source, o.Limits = nil, nil, nil, nil, nil, nil
	}
	return reflect.DeepEqual(a, b)
}

func (a *Agent) announce() {
	o := a.options()
	if n := len(o.Measure.Rules.Include) + len(o.Measure.Rules.Exclude) + len(o.Measure.Rules.Slower); n > 0 {
		a.warn(fmt.Sprintf("%s select the processes to measure", plain.Count(uint64(n), "rule")))
	}
	a.warn(fmt.Sprintf("measuring %s at %d Hz; a profile of every %s goes to %s", o.Measure.Target, o.Measure.Frequency, o.Measure.Every, o.BackEnd.URL.Redacted()))
}

// add hands a window to the delivery.
func (a *Agent) add(_ context.Context, w session.Window) error {
	p := w.Profile
	all := a.losses.Load().Plus(p.Losses)
	a.losses.Store(&all)
	excluded := a.excluded.Load().Plus(w.Excluded)
	a.excluded.Store(&excluded)
	a.delivery.Unrecorded(p.Losses.Uncounted())
	a.send(p)
	a.warn(a.governor.decide(a.options(), samplesOfCPUs(p)))
	a.windows.Add(1)
	a.window.Store(int64(time.Since(a.started)))
	return nil
}

// samplesOfCPUs returns the number of CPU samples in p, without waits.
func samplesOfCPUs(p *profile.Profile) uint64 {
	for i, v := range p.ValueTypes {
		if v.Type == "cpu" {
			return uint64(float64(p.Total(i)) * float64(p.Meta.Frequency) / 1e9)
		}
	}
	return uint64(p.Total(0))
}

// maxMessage is the size of messages, in bytes, above which they are split: gRPC's servers
// take 4 MiB by default.
const maxMessage = 3 << 20

// send hands a profile to the delivery, as messages of a size that servers accept. Only the
// first one has the losses.
func (a *Agent) send(p *profile.Profile) {
	if len(p.Samples) == 0 {
		return
	}
	message, profiles := otlp.Message(p, otlp.Options{Resource: a.options().Measure.Resource})
	if len(message) <= maxMessage || len(p.Samples) == 1 {
		a.delivery.Add(spool.Head{Samples: uint64(p.Total(0)), Profiles: uint64(profiles)}, message)
		return
	}
	first, second := *p, *p
	half := len(p.Samples) / 2
	first.Samples, second.Samples, second.Losses = p.Samples[:half], p.Samples[half:], profile.Losses{}
	a.send(&first)
	a.send(&second)
}

// conclude logs the account of all samples.
func (a *Agent) conclude(final delivery.Account) {
	text := fmt.Sprintf("%s taken, %d acknowledged, %d in the spool", plain.Count(final.Taken+final.Found, "sample"), final.Acknowledged, final.Waiting.Samples)
	for _, cause := range delivery.Causes {
		if n := final.Lost[cause]; n > 0 {
			text += fmt.Sprintf(", %d lost (%s)", n, cause)
		}
	}
	if n := a.excluded.Load().Samples; n > 0 {
		text += fmt.Sprintf("; %s excluded", plain.Count(n, "sample"))
	}
	a.warn(text)
}
