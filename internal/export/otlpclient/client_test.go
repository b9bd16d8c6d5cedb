package otlpclient

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fulgur/internal/export/otlptest"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/otlp"
)

// message returns an encoded profile.
func message(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := otlp.Write(&b, encodetest.Typical(), otlp.Options{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// environment returns an environment from names and values in pairs.
func environment(pairs ...string) Environment {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// dial returns a client for an endpoint, with names and values of variables in pairs.
func dial(t *testing.T, endpoint string, p Protocol, pairs ...string) *Client {
	t.Helper()
	config, err := Configure(endpoint, p, environment(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	c := New(config)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// serve returns the URL of a receiver.
func serve(r *otlptest.Receiver, p Protocol) string {
	if p == GRPC {
		return r.GRPC()
	}
	return r.HTTP()
}

// TestSend sends by both protocols, with each compression.
func TestSend(t *testing.T) {
	for _, p := range []Protocol{HTTP, GRPC} {
		for _, compression := range []string{"none", "gzip", "zstd"} {
			t.Run(string(p)+" "+compression, func(t *testing.T) {
				r := otlptest.NewReceiver(t, nil)
				c := dial(t, serve(r, p), p, "OTEL_EXPORTER_OTLP_HEADERS", "Token=a%20b, other=1", "OTEL_EXPORTER_OTLP_COMPRESSION", compression)
				want := message(t)
				if a, err := c.Send(t.Context(), want); a != (Answer{}) || err != nil {
					t.Fatalf("got answer %+v, error %v; want none", a, err)
				}
				got := r.Accepted()
				if len(got) != 1 {
					t.Fatalf("got %d requests, want 1", len(got))
				}
				if n := len(got[0].ResourceProfiles); n == 0 || len(got[0].Dictionary.GetStringTable()) == 0 {
					t.Errorf("got %d resources and dictionary %v, want the profile's", n, got[0].Dictionary)
				}
				if h := got[0].Header; h.Get("Token") != "a b" || h.Get("Other") != "1" || !strings.HasPrefix(h.Get("User-Agent"), "fulgur") {
					t.Errorf("got headers %v", h)
				}
				if p == HTTP {
					if !bytes.Equal(got[0].Body, want) {
						t.Error("got another message than was sent")
					}
					if e := got[0].Encoding; e != compression && (e != "" || compression != "none") {
						t.Errorf("got encoding %q", e)
					}
					if got[0].Path != "/v1development/profiles" {
						t.Errorf("got path %q", got[0].Path)
					}
				}
			})
		}
	}
}

// TestAnswers checks which responses are final.
func TestAnswers(t *testing.T) {
	withInfo := func(code codes.Code) *status.Status {
		s, err := status.New(code, "wait").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, tt := range map[string]struct {
		protocol Protocol
		reply    otlptest.Reply
		retry    bool
		after    time.Duration
	}{
		"400":           {protocol: HTTP, reply: otlptest.Reply{Status: 400}},
		"401":           {protocol: HTTP, reply: otlptest.Reply{Status: 401}},
		"404":           {protocol: HTTP, reply: otlptest.Reply{Status: 404}},
		"413":           {protocol: HTTP, reply: otlptest.Reply{Status: 413}},
		"500":           {protocol: HTTP, reply: otlptest.Reply{Status: 500}},
		"300":           {protocol: HTTP, reply: otlptest.Reply{Status: 300}},
		"429":           {protocol: HTTP, reply: otlptest.Reply{Status: 429, Header: http.Header{"Retry-After": {"7"}}}, retry: true, after: 7 * time.Second},
		"502":           {protocol: HTTP, reply: otlptest.Reply{Status: 502}, retry: true},
		"503":           {protocol: HTTP, reply: otlptest.Reply{Status: 503, Header: http.Header{"Retry-After": {"100000"}}}, retry: true, after: maxWait},
		"504":           {protocol: HTTP, reply: otlptest.Reply{Status: 504, Header: http.Header{"Retry-After": {"soon"}}}, retry: true},
		"canceled":      {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.Canceled, "")}, retry: true},
		"deadline":      {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.DeadlineExceeded, "")}, retry: true},
		"aborted":       {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.Aborted, "")}, retry: true},
		"out of range":  {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.OutOfRange, "")}, retry: true},
		"unavailable":   {protocol: GRPC, reply: otlptest.Reply{GRPC: withInfo(codes.Unavailable)}, retry: true, after: 3 * time.Second},
		"data loss":     {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.DataLoss, "")}, retry: true},
		"exhausted":     {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.ResourceExhausted, "")}},
		"exhausted now": {protocol: GRPC, reply: otlptest.Reply{GRPC: withInfo(codes.ResourceExhausted)}, retry: true, after: 3 * time.Second},
		"invalid":       {protocol: GRPC, reply: otlptest.Reply{GRPC: withInfo(codes.InvalidArgument)}, after: 3 * time.Second},
		"unknown":       {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.Unknown, "")}},
		"unimplemented": {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.Unimplemented, "")}},
		"unauthorized":  {protocol: GRPC, reply: otlptest.Reply{GRPC: status.New(codes.Unauthenticated, "")}},
	} {
		t.Run(name, func(t *testing.T) {
			r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply { return tt.reply })
			_, err := dial(t, serve(r, tt.protocol), tt.protocol).Send(t.Context(), message(t))
			var failed *Error
			if !errors.As(err, &failed) || failed.Retry != tt.retry || failed.After != tt.after {
				t.Errorf("got error %#v, want retry %v after %v", err, tt.retry, tt.after)
			}
		})
	}
}

// TestPartialSuccess checks that rejected profiles are reported.
func TestPartialSuccess(t *testing.T) {
	for _, p := range []Protocol{HTTP, GRPC} {
		r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply { return otlptest.Reply{Rejected: 2, Message: "no room"} })
		a, err := dial(t, serve(r, p), p).Send(t.Context(), message(t))
		if want := (Answer{2, "no room"}); a != want || err != nil {
			t.Errorf("%s: got answer %+v, error %v; want %+v", p, a, err, want)
		}
	}
}

// TestUnreachable checks that an unreachable back end is a reason to retry.
func TestUnreachable(t *testing.T) {
	for _, p := range []Protocol{HTTP, GRPC} {
		gone := httptest.NewServer(nil)
		gone.Close()
		_, err := dial(t, gone.URL, p).Send(t.Context(), message(t))
		var failed *Error
		if !errors.As(err, &failed) || !failed.Retry {
			t.Errorf("%s: got error %#v, want one to retry after", p, err)
		}
	}
}

// TestSlow checks that a back end that does not respond counts as unreachable.
func TestSlow(t *testing.T) {
	for _, p := range []Protocol{HTTP, GRPC} {
		t.Run(string(p), func(t *testing.T) {
			end := make(chan struct{})
			r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
				<-end
				return otlptest.Reply{}
			})
			url := serve(r, p)
			defer close(end)
			_, err := dial(t, url, p, "OTEL_EXPORTER_OTLP_TIMEOUT", "50").Send(t.Context(), message(t))
			var failed *Error
			if !errors.As(err, &failed) || !failed.Retry {
				t.Errorf("got error %#v, want one to retry after", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := dial(t, url, p).Send(ctx, message(t)); !errors.Is(err, context.Canceled) {
				t.Errorf("got error %v, want the context's", err)
			}
		})
	}
}

// TestDeliver retries until the back end accepts or refuses the message.
func TestDeliver(t *testing.T) {
	for _, last := range []int{200, 400} {
		var attempts atomic.Int32
		r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
			if attempts.Add(1) == 1 {
				return otlptest.Reply{Status: 503, Header: http.Header{"Retry-After": {"0"}}}
			}
			return otlptest.Reply{Status: last}
		})
		retried := 0
		_, err := dial(t, r.HTTP(), HTTP).Deliver(t.Context(), message(t), 0, func(error) { retried++ })
		if (err == nil) != (last == 200) || attempts.Load() != 2 || retried != 1 {
			t.Errorf("%d: got error %v after %d attempts, %d retried", last, err, attempts.Load(), retried)
		}
	}
}

// TestDeliverGivesUp ends with the last error at the time limit.
func TestDeliverGivesUp(t *testing.T) {
	r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		return otlptest.Reply{Status: 429, Header: http.Header{"Retry-After": {"3600"}}}
	})
	_, err := dial(t, r.HTTP(), HTTP).Deliver(t.Context(), message(t), time.Nanosecond, nil)
	var failed *Error
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "429") {
		t.Errorf("got error %v, want the answer 429", err)
	}
}

// TestRedirect checks that neither profiles nor headers reach another host, and that a
// redirect that drops the profiles is an error.
func TestRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host got a request with headers %v", r.Header)
	}))
	defer other.Close()
	here := otlptest.NewReceiver(t, nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away" + profilesPath:
			http.Redirect(w, r, other.URL+"/x", http.StatusTemporaryRedirect)
		case "/found" + profilesPath:
			http.Redirect(w, r, "/page", http.StatusFound)
		case "/page":
			w.WriteHeader(http.StatusOK)
		case "/near" + profilesPath:
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		default:
			here.ServeHTTP(w, r)
		}
	}))
	defer s.Close()
	for _, path := range []string{"/away", "/found"} {
		_, err := dial(t, s.URL+path, HTTP, "OTEL_EXPORTER_OTLP_HEADERS", "api-key=1").Send(t.Context(), message(t))
		var failed *Error
		if !errors.As(err, &failed) || failed.Retry || !errors.Is(err, errRedirect) {
			t.Errorf("%s: got error %#v, want a refused redirect", path, err)
		}
	}
	if _, err := dial(t, s.URL+"/near", HTTP, "OTEL_EXPORTER_OTLP_HEADERS", "api-key=1").Send(t.Context(), message(t)); err != nil {
		t.Error(err)
	}
	if got := here.Accepted(); len(got) != 1 || got[0].Header.Get("Api-Key") != "1" {
		t.Errorf("got requests %v, want one with the header", got)
	}
}

// TestExplanation checks that errors contain the server's explanation, but not all of a long
// one.
func TestExplanation(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("no entry" + strings.Repeat("!", 1<<20)))
	}))
	defer s.Close()
	_, err := dial(t, s.URL, HTTP).Send(t.Context(), message(t))
	if err == nil || !strings.Contains(err.Error(), "no entry!") || len(err.Error()) > 400 {
		t.Errorf("got error %.500v", err)
	}
	if u, _ := url.Parse(s.URL); !strings.Contains(err.Error(), u.Host) {
		t.Errorf("got error %.200v without the host", err)
	}
}

// TestCreateInterrupted interrupts the wait for a back end that is down.
func TestCreateInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	r := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply {
		interrupt()
		return otlptest.Reply{Status: 503}
	})
	out, err := Create(ctx, r.HTTP(), nil, func(text string) { t.Log(text) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write(message(t)); err != nil {
		t.Fatal(err)
	}
	if err := out.Commit(); !errors.Is(err, errUnsent) {
		t.Errorf("got error %v, want %v", err, errUnsent)
	}
}

// A web page is no acknowledgment, whatever its status.
func TestWebPage(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<html>Please log in"))
	}))
	defer s.Close()
	_, err := dial(t, s.URL, HTTP).Send(t.Context(), message(t))
	var failed *Error
	if !errors.As(err, &failed) || failed.Retry || !strings.Contains(err.Error(), "web page") {
		t.Errorf("got error %v, want the page to be refused", err)
	}
}
