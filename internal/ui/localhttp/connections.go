package localhttp

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// connections limits the number of open connections. Every user of the machine can
// connect, but only users with the token get answers. A connection that has not sent
// the token yet gives way to a new one, so a user who opens many connections loses
// only their own.
type connections struct {
	mu    sync.Mutex
	limit int
	last  uint64 // number of the newest connection
	held  map[net.Conn]*connection
}

// connection is the state of a connection.
type connection struct {
	number uint64
	// known is set once a request contained the token.
	known bool
	// idle is set between requests.
	idle bool
}

func newConnections(limit int) *connections {
	return &connections{limit: limit, held: map[net.Conn]*connection{}}
}

// note follows a connection's state; see [http.Server.ConnState]. If there are too
// many connections, it closes another one, or the new one if all others are in use.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.last++
		c.held[conn] = &connection{number: c.last}
		if len(c.held) > c.limit {
			yields := c.yielding(conn)
			delete(c.held, yields)
			_ = yields.Close() // the server notices
		}
	case http.StateActive, http.StateIdle:
		if held := c.held[conn]; held != nil {
			held.idle = state == http.StateIdle
		}
	case http.StateClosed, http.StateHijacked:
		delete(c.held, conn)
	}
}

// yielding returns the connection to close in favor of a new one: the oldest
// connection without the token, else the oldest idle one, else the new one.
func (c *connections) yielding(fresh net.Conn) net.Conn {
	best, yields := *c.held[fresh], fresh
	rank := func(of connection) int {
		switch {
		case of.number == c.last:
			return 2
		case !of.known:
			return 0
		case of.idle:
			return 1
		}
		return 3
	}
	for conn, of := range c.held {
		if r, b := rank(*of), rank(best); r < b || r == b && of.number < best.number {
			best, yields = *of, conn
		}
	}
	return yields
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// context implements [http.Server.ConnContext].
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// know marks the connection of a request as one with the token.
func (c *connections) know(ctx context.Context) {
	conn, ok := ctx.Value(connectionKey{}).(net.Conn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if held := c.held[conn]; held != nil {
		held.known = true
	}
}
