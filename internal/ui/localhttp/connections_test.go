package localhttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"fulgur/internal/testenv"
	"fulgur/internal/ui/connlimit"
)

// dial connects to a server. The connection is closed at the end of the test.
func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Many connections without the token, in any state, neither block nor cut off
// users with the token.
func TestStrangersConnections(t *testing.T) {
	events := make(chan string)
	s := listen(t, Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/events" {
			echo(w, r)
			return
		}
		for {
			_, _ = io.WriteString(w, "data\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-events:
			case <-r.Context().Done():
				return
			}
		}
	})})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	defer func() {
		cancel()
		if err := testenv.Receive(t, served, "the server does not end"); err != nil {
			t.Error(err)
		}
	}()

	stream, err := http.Get(s.URL() + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() {
		t.Fatal("got no event")
	}
	for name, stranger := range map[string]func(net.Conn){
		"silent":          func(net.Conn) {},
		"slow":            func(c net.Conn) { fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: 127") },
		"without token":   func(c net.Conn) { fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") },
		"with a body":     func(c net.Conn) { fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n") },
		"of another host": func(c net.Conn) { fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			for range connlimit.Max + 10 {
				stranger(dial(t, s))
			}
			// The request uses a new connection, like a new browser's.
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testenv.TimeLimit()}
			response, err := client.Get(s.URL() + "page")
			if err != nil {
				t.Fatalf("new connection: %v", err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if string(body) != "path /page" || err != nil {
				t.Errorf("got %q, %v; want path /page", body, err)
			}
			select {
			case events <- "":
			case <-time.After(testenv.TimeLimit()):
				t.Fatal("the stream of events was cut off")
			}
			if !lines.Scan() {
				t.Fatalf("the stream of events ended: %v", lines.Err())
			}
		})
	}
}

// A request without the token ends its connection.
func TestDeniedConnectionCloses(t *testing.T) {
	s := listen(t, Options{Handler: echo})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	defer func() {
		cancel()
		testenv.Receive(t, served, "the server does not end")
	}()
	for _, host := range []string{"127.0.0.1", "example.org"} {
		c := dial(t, s)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		if err := c.SetReadDeadline(time.Now().Add(testenv.TimeLimit())); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("host %s: the connection is still open: %v", host, err)
		}
	}
}
