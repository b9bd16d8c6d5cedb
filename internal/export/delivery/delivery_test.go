package delivery

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/otlptest"
	"fulgur/internal/export/spool"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/otlp"
	"fulgur/internal/testenv"
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

// await waits for an account.
func (r *running) await(t *testing.T, what string, wanted func(Account) bool) {
	t.Helper()
	testenv.Await(t, func() bool { return wanted(r.Account()) }, func() string { return fmt.Sprintf("got %+v, want %s", r.Account(), what) })
}

// finish sends everything, and returns the final account.
func (r *running) finish(t *testing.T) Account {
	t.Helper()
	r.End()
	r.await(t, "everything sent", func(Account) bool {
		select {
		case <-r.sent:
			return true
		default:
			return false
		}
	})
	return r.kill(t)
}

// kill ends the delivery at once.
func (r *running) kill(t *testing.T) Account {
	t.Helper()
	r.stop()
	testenv.Receive(t, r.sent, "the delivery goes on after its context was canceled")
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

// distinct returns the number of distinct messages in requests, by the IDs of their profiles.
func distinct(requests []*otlptest.Request) int {
	ids := map[string]bool{}
	for _, q := range requests {
		ids[idOf(q)] = true
	}
	return len(ids)
}

func idOf(q *otlptest.Request) string {
	return string(q.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].ProfileId)
}

// TestFaults sends to back ends that fail in turn.
func TestFaults(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	n := 0
	tried := map[string]int{} // by profile ID
	r := otlptest.NewReceiver(t, func(q *otlptest.Request) otlptest.Reply {
		mu.Lock()
		defer mu.Unlock()
		id := idOf(q)
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
		case n == 6 && tried[id] == 1:
			return otlptest.Reply{Status: 429, Header: http.Header{"Retry-After": {"1"}}}
		}
		return otlptest.Reply{}
	})
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, r.HTTP()))
	for _, m := range messages(t, 7) {
		d.Add(spool.Head{Samples: 10, Profiles: 4}, m)
	}
	d.Unrecorded(7)
	a := d.finish(t)
	if a.Taken != 77 || a.Acknowledged != 10+10+7+10+10 || a.Lost[Refused] != 10 || a.Lost[Rejected] != 3+10 || a.Lost[Unrecorded] != 7 || a.Retries != 2 {
		t.Errorf("got %+v", a)
	}
	if n := distinct(r.Accepted()); tried[""] != 0 || len(tried) != 7 || n != 6 || n != len(r.Accepted()) {
		t.Errorf("got %d profile IDs, %d of them accepted, in %d messages; want 7, 6, 6", len(tried), n, len(r.Accepted()))
	}
}

// TestLate sends to a back end that accepts each message, but at first answers too late. The message
// comes again, with the same IDs, and its samples count once.
func TestLate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	again := map[string]chan struct{}{} // closed at the second attempt
	r := otlptest.NewReceiver(t, func(q *otlptest.Request) otlptest.Reply {
		mu.Lock()
		wait, known := again[idOf(q)]
		if !known {
			wait = make(chan struct{})
			again[idOf(q)] = wait
		}
		mu.Unlock()
		if known {
			select {
			case <-wait:
			default:
				close(wait)
			}
		}
		<-wait
		return otlptest.Reply{}
	})
	c := backEnd(t, r.HTTP())
	c.Timeout = time.Second
	d := start(t, spool.InMemory(), spool.Found{}, c)
	const n = 2
	for _, m := range messages(t, n) {
		d.Add(spool.Head{Samples: 10}, m)
	}
	if a := d.finish(t); a.Acknowledged != 10*n || a.Retries < n {
		t.Errorf("got %+v, want %d samples acknowledged, and each message sent again", a, 10*n)
	}
	if all := r.Await(2 * n); distinct(all) != n {
		t.Errorf("got %d distinct messages in %d, want %d", distinct(all), len(all), n)
	}
}

// TestWrongCertificate keeps profiles while the back end's certificate is wrong.
func TestWrongCertificate(t *testing.T) {
	t.Parallel()
	r := otlptest.NewReceiver(t, nil)
	s := httptest.NewUnstartedServer(r)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of each failed handshake
	s.StartTLS()
	defer s.Close()
	c := backEnd(t, s.URL)
	c.Certificate = filepath.Join(t.TempDir(), "ca.pem")
	trust := func(certificate []byte) {
		t.Helper()
		if err := os.WriteFile(c.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trust(otherCertificate(t))
	d := start(t, spool.InMemory(), spool.Found{}, c)
	d.Add(spool.Head{Samples: 3}, messages(t, 1)[0])
	d.await(t, "a retry", func(a Account) bool { return a.Retries > 0 })
	if a := d.Account(); a.Waiting.Samples != 3 || len(r.Accepted()) != 0 {
		t.Errorf("got %+v and %d messages, want that the samples wait", a, len(r.Accepted()))
	}
	trust(s.Certificate().Raw)
	if a := d.finish(t); a.Acknowledged != 3 {
		t.Errorf("got %+v, want 3 samples acknowledged", a)
	}
}

// otherCertificate returns a certificate that no server has.
func otherCertificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestOutage kills a run while the back end is down. The next run sends the waiting profiles,
// with the same IDs.
func TestOutage(t *testing.T) {
	t.Parallel()
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
	testenv.Receive(t, refused, "nothing is sent")
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
	t.Parallel()
	asked := make(chan struct{}, 100)
	busy := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		asked <- struct{}{}
		return otlptest.Reply{Status: 429, Header: http.Header{"Retry-After": {"600"}}}
	})
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, busy.HTTP()))
	d.Add(spool.Head{Samples: 3}, messages(t, 1)[0])
	testenv.Receive(t, asked, "nothing is sent")
	r := otlptest.NewReceiver(t, nil)
	d.Use(backEnd(t, r.HTTP()))
	if a := d.finish(t); a.Acknowledged != 3 {
		t.Errorf("got %+v, want 3 samples acknowledged", a)
	}
}

// TestPace sends waiting messages one after the other, not all at once.
func TestPace(t *testing.T) {
	t.Parallel()
	const n = 4
	asked := make(chan time.Time, n)
	r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		asked <- time.Now()
		return otlptest.Reply{}
	})
	d := New(spool.InMemory(), spool.Found{}, backEnd(t, r.HTTP()), func(text string) { t.Log(text) })
	for _, m := range messages(t, n) {
		d.Add(spool.Head{Samples: 3}, m)
	}
	began := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	running := &running{d, stop, make(chan struct{})}
	go func() {
		defer close(running.sent)
		running.Run(ctx)
	}()
	var last time.Time
	for range n {
		last = testenv.Receive(t, asked, "a message is not sent")
	}
	if took := last.Sub(began); took < (n-1)*pace {
		t.Errorf("%d messages were sent in %s, want at least %s", n, took, (n-1)*pace)
	}
	if a := running.finish(t); a.Acknowledged != 3*n {
		t.Errorf("got %+v, want %d samples acknowledged", a, 3*n)
	}
}

// TestShutdown counts the samples that were only in memory.
func TestShutdown(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	busy := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		asked <- struct{}{}
		return otlptest.Reply{Status: 503}
	})
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, busy.HTTP()))
	for _, m := range messages(t, 2) {
		d.Add(spool.Head{Samples: 3}, m)
	}
	testenv.Receive(t, asked, "nothing is sent")
	if a := d.kill(t); a.Lost[Shutdown] != 6 || a.Waiting.Samples != 0 {
		t.Errorf("got %+v, want 6 samples lost", a)
	}
}

// failing is the answer of a back end that is down, and does not want to be asked again for long.
var failing = otlptest.Reply{Status: 503, Header: http.Header{"Retry-After": {"600"}}}

// finishes calls [Delivery.Finish] and returns the final account.
func (r *running) finishes(t *testing.T) Account {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Finish(r.sent, r.stop)
	}()
	testenv.Receive(t, done, "the delivery does not end")
	return r.close(t)
}

// TestLastFlush ends a delivery when the back end has just come back, long before the next attempt.
func TestLastFlush(t *testing.T) {
	t.Parallel()
	const n = 3
	for name, spooled := range map[string]bool{"memory": false, "spool": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var back atomic.Bool
			asked := make(chan struct{}, 100)
			r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
				if back.Load() {
					return otlptest.Reply{}
				}
				asked <- struct{}{}
				return failing
			})
			store, found := spool.InMemory(), spool.Found{}
			if spooled {
				var err error
				if store, found, err = spool.Open(filepath.Join(t.TempDir(), "spool"), 1<<20); err != nil {
					t.Fatal(err)
				}
			}
			d := start(t, store, found, backEnd(t, r.HTTP()))
			for _, m := range messages(t, n) {
				d.Add(spool.Head{Samples: 3}, m)
			}
			testenv.Receive(t, asked, "nothing is sent")
			d.await(t, "a retry", func(a Account) bool { return a.Retries > 0 })
			back.Store(true)
			if a := d.finishes(t); a.Taken != 3*n || a.Acknowledged != 3*n || distinct(r.Accepted()) != n {
				t.Errorf("got %+v and %d distinct messages, want %d samples acknowledged in %d", a, distinct(r.Accepted()), 3*n, n)
			}
		})
	}
}

// TestLastFlushHangs ends a delivery while an attempt hangs, after another one failed. The back end answers
// a new connection.
func TestLastFlushHangs(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	hangs, release := make(chan struct{}), make(chan struct{})
	r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		switch n.Add(1) {
		case 1:
			return otlptest.Reply{Status: 503, Header: http.Header{"Retry-After": {"0"}}}
		case 2:
			close(hangs)
			<-release
			return otlptest.Reply{Status: 503}
		}
		return otlptest.Reply{}
	})
	url := r.HTTP()
	defer close(release) // before the server waits for its requests
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, url))
	d.Add(spool.Head{Samples: 3}, messages(t, 1)[0])
	testenv.Receive(t, hangs, "nothing is sent again")
	if a := d.finishes(t); a.Acknowledged != 3 {
		t.Errorf("got %+v, want 3 samples acknowledged", a)
	}
}

// TestLastFlushFails ends a delivery whose back end stays away. A last attempt is made by a new client, since
// gRPC's would still wait before it connects again. Then the delivery ends and counts what was only in memory.
func TestLastFlushFails(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		asked <- struct{}{}
		return failing
	})
	d := start(t, spool.InMemory(), spool.Found{}, backEnd(t, r.HTTP()))
	for _, m := range messages(t, 2) {
		d.Add(spool.Head{Samples: 3}, m)
	}
	testenv.Receive(t, asked, "nothing is sent")
	d.await(t, "a retry", func(a Account) bool { return a.Retries > 0 })
	d.mu.Lock()
	before := d.client
	d.mu.Unlock()
	a := d.finishes(t)
	if d.client == before {
		t.Error("the last attempt was made by the old client")
	}
	if a.Taken != 6 || a.Lost[Shutdown] != 6 || a.Waiting.Samples != 0 || len(asked) != 1 {
		t.Errorf("got %+v after %d last attempts, want 6 samples lost after 1", a, len(asked))
	}
}

// TestOverflow overfills a small spool.
func TestOverflow(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	d.await(t, "a sample acknowledged", func(a Account) bool { return a.Acknowledged > 0 })
	if a := d.kill(t); a.Acknowledged != 1 || a.Lost[Shutdown] != 1 {
		t.Errorf("got %+v, want one sample acknowledged, and one that was not", a)
	}
}

// TestSavedLater checks that profiles in memory are written as soon as the directory is
// writable again.
func TestSavedLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	store, found, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var logged []string
	d := New(store, found, backEnd(t, otlptest.NewReceiver(t, nil).HTTP()), func(text string) { logged = append(logged, text) })
	d.Begin() // so that there is work that succeeds
	block := func() {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, "incomplete"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "incomplete", "x"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unblock := func() {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, "incomplete")); err != nil {
			t.Fatal(err)
		}
	}
	block()
	all := messages(t, 2)
	d.Add(spool.Head{Samples: 4}, all[0])
	if _, failed := d.saveAll(); !failed {
		t.Fatal("got no error for a directory in place of the file")
	}
	d.Add(spool.Head{Samples: 8}, all[1])
	if _, failed := d.saveAll(); !failed || len(logged) != 1 || !strings.Contains(logged[0], "kept in memory") {
		t.Errorf("got failed %v and the messages %q, want another failure and one message", failed, logged)
	}
	if a := d.Account(); a.Waiting.Memory == 0 || a.Waiting.Files != 0 || a.Waiting.Samples != 12 {
		t.Errorf("got %+v, want all in memory", a)
	}
	unblock()
	if _, failed := d.saveAll(); failed || len(logged) != 2 || !strings.Contains(logged[1], "written again") {
		t.Errorf("got failed %v and the messages %q, want no failure and a second message", failed, logged)
	}
	if a := d.Account(); a.Waiting.Memory != 0 || a.Waiting.Samples != 12 {
		t.Errorf("got %+v, want all in files", a)
	}
	for range 2 * maxReports { // a disk that is full now and then
		block()
		d.Add(spool.Head{Samples: 1}, all[0])
		if _, failed := d.saveAll(); !failed {
			t.Fatal("got no error for a directory in place of the file")
		}
		unblock()
		if _, failed := d.saveAll(); failed {
			t.Fatal("got an error after the directory was removed")
		}
	}
	if len(logged) != 2*maxReports {
		t.Errorf("got %d messages, want %d: %q", len(logged), 2*maxReports, logged)
	}
	if _, err := d.Close(); err != nil {
		t.Error(err)
	}
}
