// Package connlimit limits the open connections of an HTTP server to which strangers can
// connect, without letting them shut out others.
package connlimit

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Max is the maximum number of open connections of a server, so that a user who opens many
// does not use up the file descriptors that a profiler needs.
const Max = 256

// Limiter limits the number of open connections. A connection that is not known gives way
// to a new one, so a user who opens many connections loses only their own.
type Limiter struct {
	mu    sync.Mutex
	limit int
	last  uint64 // number of the newest connection
	held  map[net.Conn]*connection
}

// connection is the state of a connection.
type connection struct {
	number uint64
	// known is set while the server has reason to keep the connection.
	known bool
	// idle is set between requests.
	idle bool
}

// Limit limits the connections of s, which does not serve yet, to [Max].
func Limit(s *http.Server) *Limiter {
	l := newLimiter(Max)
	s.ConnState, s.ConnContext = l.note, l.context
	return l
}

func newLimiter(limit int) *Limiter {
	return &Limiter{limit: limit, held: map[net.Conn]*connection{}}
}

// note follows a connection's state; see [http.Server.ConnState]. If there are too
// many connections, it closes another one, or the new one if all others are in use.
func (l *Limiter) note(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		l.last++
		l.held[conn] = &connection{number: l.last}
		if len(l.held) > l.limit {
			yields := l.yielding(conn)
			delete(l.held, yields)
			_ = yields.Close() // the server notices
		}
	case http.StateActive, http.StateIdle:
		if held := l.held[conn]; held != nil {
			held.idle = state == http.StateIdle
		}
	case http.StateClosed, http.StateHijacked:
		delete(l.held, conn)
	}
}

// yielding returns the connection to close in favor of a new one: the oldest
// connection that is not known, else the oldest idle one, else the new one.
func (l *Limiter) yielding(fresh net.Conn) net.Conn {
	best, yields := *l.held[fresh], fresh
	rank := func(of connection) int {
		switch {
		case of.number == l.last:
			return 2
		case !of.known:
			return 0
		case of.idle:
			return 1
		}
		return 3
	}
	for conn, of := range l.held {
		if r, b := rank(*of), rank(best); r < b || r == b && of.number < best.number {
			best, yields = *of, conn
		}
	}
	return yields
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// context implements [http.Server.ConnContext].
func (l *Limiter) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// Know marks the connection of a request, whose context is ctx, as known: it gives way only
// between requests, and after those that are not known.
func (l *Limiter) Know(ctx context.Context) { l.mark(ctx, true) }

// Forget undoes [Limiter.Know].
func (l *Limiter) Forget(ctx context.Context) { l.mark(ctx, false) }

func (l *Limiter) mark(ctx context.Context, known bool) {
	conn, ok := ctx.Value(connectionKey{}).(net.Conn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.held[conn]; held != nil {
		held.known = known
	}
}
