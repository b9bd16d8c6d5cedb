package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/rules"
	"fulgur/internal/export/delivery"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/otlptest"
	"fulgur/internal/export/spool"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/session"
	"fulgur/internal/testenv"
	"fulgur/internal/ui/connlimit"
)

// idle returns an agent that does not measure, and the receiver of its messages.
func idle(t *testing.T) (*Agent, *otlptest.Receiver) {
	t.Helper()
	r := otlptest.NewReceiver(t, nil)
	c, err := otlpclient.Configure(r.HTTP(), "", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{log: t.Output(), started: time.Now(), governor: newGovernor(Budget{})}
	var o Options
	o.Measure.Every, o.Measure.Frequency = 10*time.Second, 19
	a.inUse.Store(&o)
	a.losses.Store(new(profile.Losses))
	a.excluded.Store(new(session.Excluded))
	a.bolter = newBolter(func() Bolt { return a.options().Bolt }, func(text string) { t.Log(text) })
	a.delivery = delivery.New(spool.InMemory(), spool.Found{}, c, func(text string) { t.Log(text) })
	return a, r
}

// TestMetrics checks the format and that losses add up.
func TestMetrics(t *testing.T) {
	a, r := idle(t)
	p := encodetest.Typical()
	p.Losses = profile.Losses{profile.LossSamples: 3, profile.LossTruncatedUser: 2}
	for range 2 {
		if err := a.add(t.Context(), session.Window{Profile: p, Excluded: session.Excluded{Samples: 5, CPU: 250 * time.Millisecond, Thinned: 7}}); err != nil {
			t.Fatal(err)
		}
	}
	a.delivery.End()
	a.delivery.Run(t.Context())
	w := httptest.NewRecorder()
	a.handler(connlimit.Limit(new(http.Server))).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	total := 2 * p.Total(0)
	for _, want := range []string{
		fmt.Sprintf("fulgur_samples_taken_total %d", total+6), fmt.Sprintf("fulgur_samples_acknowledged_total %d", total),
		`fulgur_samples_lost_total{cause="unrecorded"} 6`, `fulgur_losses_total{cause="truncated_user"} 4`, "fulgur_windows_total 2",
		"fulgur_samples_excluded_total 10", "fulgur_excluded_cpu_seconds_total 0.5", "fulgur_samples_thinned_total 14",
		"fulgur_sampling_frequency_hertz 19", "fulgur_names_omitted 0",
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("got no %q in\n%s", want, text)
		}
	}
	line := regexp.MustCompile(`^(# (HELP|TYPE) \w+ .+|\w+(\{\w+="\w+"\})? [0-9.e+-]+)$`)
	for l := range strings.Lines(text) {
		if !line.MatchString(strings.TrimSuffix(l, "\n")) {
			t.Errorf("got the line %q", l)
		}
	}
	if n := len(r.Accepted()); n != 2 {
		t.Errorf("got %d messages, want 2", n)
	}
}

// TestHealth checks that an agent without new windows becomes unhealthy.
func TestHealth(t *testing.T) {
	a, _ := idle(t)
	for seconds, healthy := range map[int]bool{0: true, 79: true, 81: false} {
		if p := a.problem(a.started.Add(time.Duration(seconds) * time.Second)); (p == "") != healthy {
			t.Errorf("after %d s: got %q", seconds, p)
		}
	}
	a.window.Store(int64(60 * time.Second))
	if p := a.problem(a.started.Add(90 * time.Second)); p != "" {
		t.Errorf("got %q although there was a window", p)
	}
}

// TestSplit checks that a large profile becomes several messages with all samples once.
func TestSplit(t *testing.T) {
	a, r := idle(t)
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	const samples = 6000
	for i := range samples {
		f := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: fmt.Sprint(i) + strings.Repeat("x", 1000)})})
		b.Add(profile.Sample{Stack: b.Push(0, f), Task: b.Task(profile.Task{PID: 1, Comm: "a"}), CPU: -1, Values: []int64{1}})
	}
	p := b.Profile(profile.Meta{}, profile.Losses{profile.LossTruncatedUser: 5})
	if err := a.add(t.Context(), session.Window{Profile: p}); err != nil {
		t.Fatal(err)
	}
	a.delivery.End()
	a.delivery.Run(t.Context())
	var got, losses int64
	ids := map[string]bool{}
	for _, q := range r.Accepted() {
		if len(q.Body) > maxMessage {
			t.Errorf("got a message of %d bytes", len(q.Body))
		}
		s := q.ResourceProfiles[0].ScopeProfiles[0]
		for _, row := range s.Profiles[0].AttributeIndices {
			attribute := q.Dictionary.AttributeTable[row]
			if q.Dictionary.StringTable[attribute.KeyStrindex] == "fulgur.lost.truncated_user" {
				losses += attribute.Value.GetIntValue()
			}
		}
		for _, p := range s.Profiles {
			ids[string(p.ProfileId)] = true
			for _, one := range p.Samples {
				got += one.Values[0]
			}
		}
	}
	if n := len(r.Accepted()); n < 2 || got != samples || losses != 5 || len(ids) != n {
		t.Errorf("got %d messages, %d IDs, %d samples and losses %d; want %d and 5", n, len(ids), got, losses, samples)
	}
}

// TestGap describes the time without measurement, also if the clock was set back.
func TestGap(t *testing.T) {
	stopped := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	if gap, text := gapUntil(stopped.Add(90*time.Second), stopped); gap != 90*time.Second || !strings.HasSuffix(text, "from 2026-03-04T05:06:07Z to 2026-03-04T05:07:37Z") {
		t.Errorf("got %s, %q, want 90 s", gap, text)
	}
	if gap, text := gapUntil(stopped.Add(-time.Hour), stopped); gap != 0 || !strings.Contains(text, "set back") {
		t.Errorf("after the clock was set back: got %s, %q, want an unknown gap", gap, text)
	}
}

// TestBadStart checks that a bad configuration fails at once, with the error's exit code.
func TestBadStart(t *testing.T) {
	bad := errors.New("bad")
	if code, err := Run(t.Context(), func() (Options, error) { return Options{}, bad }, nil, t.Output()); code != 2 || !errors.Is(err, bad) {
		t.Errorf("got code %d, error %v", code, err)
	}
	o := Options{Listen: "256.0.0.1:1", BackEnd: otlpclient.Config{}}
	o.BackEnd, _ = otlpclient.Configure("", "", func(string) string { return "" })
	if code, err := Run(t.Context(), func() (Options, error) { return o, nil }, nil, t.Output()); code != 1 || err == nil {
		t.Errorf("got code %d, error %v", code, err)
	}
}

// TestSameMeasure checks which changes need a new measurement.
func TestSameMeasure(t *testing.T) {
	o := session.RecordOptions{Frequency: 19, NoFaults: true}
	same := o
	same.Stdout, same.Ready, same.Limits = t.Output(), func() {}, func() session.Limits { return session.Limits{} }
	other := o
	other.Frequency = 49
	if !sameMeasure(o, same) || sameMeasure(o, other) {
		t.Errorf("got %v and %v, want true and false", sameMeasure(o, same), sameMeasure(o, other))
	}
	ruled := func(text string) session.RecordOptions {
		r, err := rules.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		with := o
		with.Rules.Exclude = []rules.Rule{r}
		return with
	}
	if !sameMeasure(ruled("unit=a"), ruled("unit=a")) || sameMeasure(ruled("unit=a"), ruled("unit=b")) || sameMeasure(ruled("unit=a"), o) {
		t.Error("configurations with other rules measure the same, or those with the same rules do not")
	}
}

// A reload that leaves the back end as it is does not repeat the request in flight.
func TestApplySameBackEnd(t *testing.T) {
	asked, reply := make(chan struct{}, 10), make(chan struct{})
	r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		asked <- struct{}{}
		<-reply
		return otlptest.Reply{}
	})
	url := r.HTTP()
	configure := func() Options {
		c, err := otlpclient.Configure(url, "", func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		return Options{BackEnd: c}
	}
	o := configure()
	a := &Agent{log: t.Output()}
	a.inUse.Store(&o)
	a.delivery = delivery.New(spool.InMemory(), spool.Found{}, o.BackEnd, a.warn)
	sent, ctx := make(chan struct{}), t.Context()
	go func() {
		defer close(sent)
		a.delivery.Run(ctx)
	}()
	a.delivery.Add(spool.Head{Samples: 3}, []byte{})
	testenv.Receive(t, asked, "nothing is sent")
	a.apply(configure())
	close(reply)
	a.delivery.End()
	testenv.Receive(t, sent, "the delivery does not end")
	account, err := a.delivery.Close()
	if err != nil || account.Acknowledged != 3 || len(asked) != 0 {
		t.Errorf("got %+v, %v, and %d more requests; want 3 samples acknowledged by one request", account, err, len(asked))
	}
}
