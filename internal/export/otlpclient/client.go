package otlpclient

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Answer is the response to a message that was accepted, at least in part.
type Answer struct {
	// Rejected is the number of profiles that were not accepted.
	Rejected int64
	// Message is the reason, or a warning.
	Message string
}

// Error is the reason why profiles were not accepted.
type Error struct {
	Err error
	// Retry is whether the profiles may be accepted later. After is how long to wait before
	// the next attempt, or 0 if the back end does not say.
	Retry bool
	After time.Duration
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// connection sends messages by one protocol.
type connection interface {
	send(ctx context.Context, message []byte) (Answer, error)
	close() error
}

// Client sends to a back end. It is not safe for concurrent use.
type Client struct {
	config     Config
	connection connection
	stamp      string // of the certificates that connection uses
}

// New returns a client. It connects at the first [Client.Send].
func New(c Config) *Client { return &Client{config: c} }

// Send sends an encoded message once. Unless ctx is done, errors are of type [*Error].
func (c *Client) Send(ctx context.Context, message []byte) (Answer, error) {
	if err := c.connect(); err != nil {
		return Answer{}, &Error{Err: err, Retry: true}
	}
	limited, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	answer, err := c.connection.send(limited, message)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return answer, fmt.Errorf("send to %s: %w", c.config.URL.Host, ctx.Err())
	}
	failed := &Error{Retry: true} // no response
	_ = errors.As(err, &failed)
	return answer, &Error{Err: fmt.Errorf("send to %s: %w", c.config.URL.Host, err), Retry: failed.Retry, After: failed.After}
}

// connect prepares a connection if there is none, or if certificates have changed.
func (c *Client) connect() error {
	stamp := c.config.stamp()
	if c.connection != nil && stamp == c.stamp {
		return nil
	}
	t, err := c.config.tls()
	if err != nil {
		return err
	}
	begin := newHTTP
	if c.config.Protocol == GRPC {
		begin = newGRPC
	}
	fresh, err := begin(&c.config, t)
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return errors.Join(err, fresh.close())
	}
	c.connection, c.stamp = fresh, stamp
	return nil
}

// Close closes the connection.
func (c *Client) Close() error {
	if c.connection == nil {
		return nil
	}
	err := c.connection.close()
	c.connection = nil
	return err
}
