package delivery

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/otlptest"
	"fulgur/internal/export/spool"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/otlp"
)

// backEnd returns the configuration for a URL.
func backEnd(t *testing.T, url string) otlpclient.Config {
	t.Helper()
	c, err := otlpclient.Configure(url, "", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// messages returns n different messages.
func messages(t *testing.T, n int) (all [][]byte) {
	t.Helper()
	for i := range n {
		p := encodetest.Typical()
		p.Meta.Host = fmt.Sprint("host", i)
		var b bytes.Buffer
		if err := otlp.Write(&b, p, otlp.Options{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, b.Bytes())
	}
	return all
}

// running is a delivery that runs until finish.
type running struct {
	*Delivery
	stop context.CancelFunc
	sent chan struct{}
}

func start(t *testing.T, s *spool.Spool, found spool.Found, c otlpclient.Config) *running {
	ctx, stop := context.WithCancel(t.Context())
	r := &running{New(s, found, c, func(text string) { t.Log(text) }), stop, make(chan struct{})}
	go func() {
		defer close(r.sent)
		r.Run(ctx)
	}()
	return r
}

// finish sends everything, and returns the final account.
func (r *running) finish(t *testing.T) Account {
	t.Helper()
	r.End()
	<-r.sent
	r.stop()
	return r.close(t)
}

// kill ends the delivery at once.
func (r *running) kill(t *testing.T) Account {
	t.Helper()
	r.stop()
	<-r.sent
	return r.close(t)
}

func (r *running) close(t *testing.T) Account {
	t.Helper()
	a, err := r.Close()
	if err != nil {
		t.Error(err)
	}
	balance(t, a)
	return a
}

// balance checks that an account counts every sample exactly once.
func balance(t *testing.T, a Account) {
	t.Helper()
	sum := a.Acknowledged + a.Waiting.Samples
	for _, n := range a.Lost {
		sum += n
	}
	if sum != a.Taken+a.Found {
		t.Errorf("got %d samples accounted for, want %d: %+v", sum, a.Taken+a.Found, a)
	}
}

// TestFaults sends to back ends that fail in turn.
func TestFaults(t *testing.T) {
	var mu sync.Mutex
	n := 0
	tried := map[string]int{} // by profile ID
	r := otlptest.NewReceiver(t, func(q *otlptest.Request) otlptest.Reply {
		mu.Lock()
		defer mu.Unlock()
		id := string(q.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].ProfileId)
		if tried[id]++; tried[id] == 1 {
			n++
		}
		switch {
		case n == 2 && tried[id] == 1:
			return otlptest.Reply{Status: 503, Header: http.Header{"Retry-After": {"0"}}}
		case n == 3:
			return otlptest.Reply{Status: 400}
		case n == 4:
			return otlptest.Reply{Rejected: 1, Message: "one too many"}
		case n == 5:
			return otlptest.Reply{Rejected: 4}
		}
		return otlptest.Reply{}
	})
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, r.HTTP()))
	for _, m := range messages(t, 6) {
		d.Add(spool.Head{Samples: 10, Profiles: 4}, m)
	}
	d.Unrecorded(7)
	a := d.finish(t)
	if a.Taken != 67 || a.Acknowledged != 10+10+7+10 || a.Lost[Refused] != 10 || a.Lost[Rejected] != 3+10 || a.Lost[Unrecorded] != 7 || a.Retries != 1 {
		t.Errorf("got %+v", a)
	}
	if tried[""] != 0 || len(tried) != 6 {
		t.Errorf("got %d profile IDs, want 6", len(tried))
	}
}

// TestOutage kills a run while the back end is down. The next run sends the waiting profiles,
// with the same IDs.
func TestOutage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	store, found, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{}, 100)
	gone := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		refused <- struct{}{}
		return otlptest.Reply{Status: 503}
	})
	d := start(t, store, found, backEnd(t, gone.HTTP()))
	all := messages(t, 3)
	for _, m := range all {
		d.Add(spool.Head{Samples: 5, Profiles: 4}, m)
	}
	<-refused
	if a := d.kill(t); a.Waiting.Samples != 15 || a.Acknowledged != 0 {
		t.Errorf("got %+v, want 15 samples that wait", a)
	}

	if store, found, err = spool.Open(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	r := otlptest.NewReceiver(t, nil)
	d = start(t, store, found, backEnd(t, r.HTTP()))
	if a := d.finish(t); a.Found != 15 || a.Acknowledged != 15 {
		t.Errorf("got %+v, want 15 samples acknowledged", a)
	}
	got := r.Accepted()
	if len(got) != len(all) {
		t.Fatalf("got %d messages, want %d", len(got), len(all))
	}
	for i, m := range all {
		if !bytes.Equal(got[i].Body, m) {
			t.Errorf("message %d differs", i)
		}
	}
}

// TestUse sends to another back end at once, although the first one asked to wait.
func TestUse(t *testing.T) {
	asked := make(chan struct{}, 100)
	busy := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		asked <- struct{}{}
		return otlptest.Reply{Status: 429, Header: http.Header{"Retry-After": {"600"}}}
	})
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, busy.HTTP()))
	d.Add(spool.Head{Samples: 3}, messages(t, 1)[0])
	<-asked
	r := otlptest.NewReceiver(t, nil)
	d.Use(backEnd(t, r.HTTP()))
	if a := d.finish(t); a.Acknowledged != 3 {
		t.Errorf("got %+v, want 3 samples acknowledged", a)
	}
}

// TestShutdown counts the samples that were only in memory.
func TestShutdown(t *testing.T) {
	asked := make(chan struct{}, 100)
	busy := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		asked <- struct{}{}
		return otlptest.Reply{Status: 503}
	})
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, busy.HTTP()))
	for _, m := range messages(t, 2) {
		d.Add(spool.Head{Samples: 3}, m)
	}
	<-asked
	if a := d.kill(t); a.Lost[Shutdown] != 6 || a.Waiting.Samples != 0 {
		t.Errorf("got %+v, want 6 samples lost", a)
	}
}

// TestOverflow overfills a small spool.
func TestOverflow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	all := messages(t, 2)
	store, found, err := spool.Open(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	d := New(store, found, backEnd(t, otlptest.NewReceiver(t, nil).HTTP()), func(string) {})
	d.Add(spool.Head{Samples: 1}, all[0])
	d.Add(spool.Head{Samples: 2}, all[1])
	d.saveAll()
	a := d.Account()
	balance(t, a)
	if a.Lost[Overflow] != 3 {
		t.Errorf("got %+v, want an overflow of all", a)
	}
	if _, err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestCorruption damages a file in the spool.
func TestCorruption(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	all := messages(t, 2)
	store, found, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	d := New(store, found, backEnd(t, otlptest.NewReceiver(t, nil).HTTP()), func(string) {})
	d.Add(spool.Head{Samples: 4}, all[0])
	d.Add(spool.Head{Samples: 8}, all[1])
	d.saveAll()
	names, err := filepath.Glob(filepath.Join(dir, "*.window"))
	if err != nil || len(names) != 2 {
		t.Fatalf("got files %q, error %v; want two", names, err)
	}
	if err := os.Truncate(names[0], 30); err != nil {
		t.Fatal(err)
	}
	d.End()
	d.Run(t.Context())
	a, err := d.Close()
	if balance(t, a); err != nil || a.Lost[Corrupt] != 4 || a.Acknowledged != 8 || a.CorruptFiles != 1 {
		t.Errorf("got %+v, error %v; want 4 samples lost and 8 acknowledged", a, err)
	}
	if aside, err := filepath.Glob(filepath.Join(dir, "*.corrupt")); err != nil || len(aside) != 1 {
		t.Errorf("got %q, error %v; want one file that was set aside", aside, err)
	}
}

// TestPoison checks that other windows are sent although one window always gets a 503
// response.
func TestPoison(t *testing.T) {
	all := messages(t, 2)
	r := otlptest.NewReceiver(t, func(q *otlptest.Request) otlptest.Reply {
		if bytes.Equal(q.Body, all[0]) {
			return otlptest.Reply{Status: 503, Header: http.Header{"Retry-After": {"0"}}}
		}
		return otlptest.Reply{}
	})
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, r.HTTP()))
	for _, m := range all {
		d.Add(spool.Head{Samples: 1}, m)
	}
	for d.Account().Acknowledged == 0 {
		time.Sleep(time.Millisecond)
	}
	if a := d.kill(t); a.Acknowledged != 1 || a.Lost[Shutdown] != 1 {
		t.Errorf("got %+v, want one sample acknowledged, and one that was not", a)
	}
}

// TestSavedLater checks that profiles in memory are written as soon as the directory is
// writable again.
func TestSavedLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	store, found, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	d := New(store, found, backEnd(t, otlptest.NewReceiver(t, nil).HTTP()), func(text string) { t.Log(text) })
	if err := os.Mkdir(filepath.Join(dir, "incomplete"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "incomplete", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all := messages(t, 2)
	d.Add(spool.Head{Samples: 4}, all[0])
	if _, failed := d.saveAll(); !failed {
		t.Fatal("got no error for a directory in place of the file")
	}
	d.Add(spool.Head{Samples: 8}, all[1])
	if a := d.Account(); a.Waiting.Memory == 0 || a.Waiting.Files != 0 || a.Waiting.Samples != 12 {
		t.Errorf("got %+v, want all in memory", a)
	}
	if err := os.RemoveAll(filepath.Join(dir, "incomplete")); err != nil {
		t.Fatal(err)
	}
	if _, failed := d.saveAll(); failed {
		t.Error("the directory still fails")
	}
	if a := d.Account(); a.Waiting.Memory != 0 || a.Waiting.Samples != 12 {
		t.Errorf("got %+v, want all in files", a)
	}
	if _, err := d.Close(); err != nil {
		t.Error(err)
	}
}
