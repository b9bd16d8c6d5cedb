package agent

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulgur/internal/export/delivery"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/spool"
	"fulgur/internal/profile"
	"fulgur/internal/session"
	"fulgur/internal/testenv"
	"fulgur/internal/ui/connlimit"
)

// Many connections, in any state, do not shut out requests for /healthz and /metrics.
func TestStrangersConnections(t *testing.T) {
	a := &Agent{log: t.Output(), started: time.Now(), governor: newGovernor(Budget{})}
	a.inUse.Store(&Options{Listen: "127.0.0.1:0"})
	a.losses.Store(new(profile.Losses))
	a.excluded.Store(new(session.Excluded))
	a.bolter = newBolter(func() Bolt { return Bolt{} }, a.warn)
	a.delivery = delivery.New(spool.InMemory(), spool.Found{}, otlpclient.Config{}, a.warn)
	var log strings.Builder
	a.log = &log
	s, err := a.listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	_, rest, _ := strings.Cut(log.String(), "http://")
	address, _, _ := strings.Cut(rest, "/")
	for name, stranger := range map[string]func(net.Conn){
		"silent":      func(net.Conn) {},
		"slow":        func(c net.Conn) { fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n") },
		"with a body": func(c net.Conn) { fmt.Fprint(c, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n") },
		"answered": func(c net.Conn) {
			fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			_, _ = bufio.NewReader(c).ReadString('\n')
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range connlimit.Max + 10 {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				stranger(c)
			}
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testenv.TimeLimit()}
			for path, want := range map[string]string{"/healthz": "ok", "/metrics": "fulgur_windows_total 0"} {
				response, err := client.Get("http://" + address + path)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				if err != nil || !strings.Contains(string(body), want) {
					t.Errorf("%s: got %q, error %v; want %q in it", path, body, err, want)
				}
			}
		})
	}
}

// The text is made again only after a second.
func TestPage(t *testing.T) {
	made := 0
	p := &page{make: func() string { made++; return fmt.Sprint(made) }}
	now := time.Now()
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, "1"}, {999 * time.Millisecond, "1"}, {time.Second, "2"}, {1500 * time.Millisecond, "2"}, {2 * time.Second, "3"}} {
		if got := p.get(now.Add(c.after)); got != c.want {
			t.Errorf("after %s: got %s, want %s", c.after, got, c.want)
		}
	}
}

// Only the user can connect to the socket. A socket that a killed process left does not prevent a start; a
// socket in use and other files do.
func TestListenAtSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	killed, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := listenAt("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info, err)
	}
	if _, err := listenAt("unix:" + path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("in use: got %v, want an error", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenAt("unix:" + path); err == nil {
		t.Error("a file: got no error")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "data" {
		t.Errorf("the file has %q, %v, want it unchanged", data, err)
	}
}
