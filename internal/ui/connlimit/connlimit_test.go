package connlimit

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestYielding tests which connection gives way to a new one.
func TestYielding(t *testing.T) {
	const (
		stranger = iota
		known
		knownIdle
		forgotten
	)
	for name, test := range map[string]struct {
		held []int
		want int // index, or the new connection's if all others are in use
	}{
		"the oldest stranger": {[]int{known, knownIdle, stranger, stranger}, 2},
		"one that was known":  {[]int{known, knownIdle, forgotten}, 2},
		"the oldest idle one": {[]int{known, knownIdle, knownIdle, known}, 1},
		"the new one":         {[]int{known, known}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := newLimiter(len(test.held))
			var peers []net.Conn
			add := func() net.Conn {
				ours, theirs := net.Pipe()
				peers = append(peers, theirs)
				t.Cleanup(func() { theirs.Close() })
				c.note(ours, http.StateNew)
				return ours
			}
			for _, kind := range test.held {
				conn := add()
				c.note(conn, http.StateActive)
				if kind == stranger {
					continue
				}
				c.Know(c.context(t.Context(), conn))
				if kind == forgotten {
					c.Forget(c.context(t.Context(), conn))
				}
				if kind == knownIdle {
					c.note(conn, http.StateIdle)
				}
			}
			fresh := add()
			for i, peer := range peers {
				_ = peer.SetReadDeadline(time.Now()) // fails if the connection is closed
				_, err := peer.Read(make([]byte, 1))
				if closed := errors.Is(err, io.EOF); closed != (i == test.want) {
					t.Errorf("connection %d of %d: got closed: %v, want the opposite", i, len(peers), closed)
				}
			}
			c.note(fresh, http.StateClosed)
			if _, held := c.held[fresh]; held || len(c.held) > len(test.held) {
				t.Errorf("got %d connections, want the new one closed", len(c.held))
			}
		})
	}
}
