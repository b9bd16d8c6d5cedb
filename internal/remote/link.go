package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"fulgur/internal/linux/child"
)

// link is a connection to the other side by a program of the user.
type link struct {
	*peer
	name    string // of the program
	cmd     *exec.Cmd
	in, out io.Closer
	ended   chan struct{} // closed at the end of the program
	err     error         // of its end
	kept    func() bool   // keeps the link when its context is done
	silence time.Duration
	silent  *time.Timer
	gone    atomic.Bool // the other side was silent
	pod     string      // the pod to measure, NAMESPACE/POD, "" for none
	cleanUp func()      // is called at the end, if it is not nil
}

// How long to wait for the program's own end, and for the rest of its messages: a connection that ssh shares
// with others may keep them open.
const (
	lastEnd      = 30 * time.Second
	lastMessages = 2 * time.Second
)

// startLink starts a program that connects its standard input and output to the other side, and kills it
// when ctx is done.
//
// It ignores the signals of Ctrl-C, which must not break the connection: this process passes them on. It
// stays in the terminal's foreground, to ask for passwords.
func startLink(ctx context.Context, argv []string, s *setup) (*link, error) {
	cmd := unsignaled(argv)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Unlike StdoutPipe, it stays open when the program ends.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = theirs, s.stderr, lastMessages
	err = child.Start(cmd)
	if err := errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	l := &link{peer: newPeer(out, in), name: argv[0], cmd: cmd, in: in, out: out, ended: make(chan struct{}), silence: s.silence}
	l.kept = context.AfterFunc(ctx, l.kill)
	go func() {
		l.err = cmd.Wait()
		close(l.ended)
	}()
	return l, nil
}

// unsignaled returns a command that ignores the signals of Ctrl-C.
func unsignaled(argv []string) *exec.Cmd {
	return exec.Command("/bin/sh", append([]string{"-c", `trap "" INT HUP TERM; exec "$@"`, "sh"}, argv...)...)
}

// kill ends the connection at once.
func (l *link) kill() { _ = l.cmd.Process.Kill() } // it may have ended

// heard says that something was heard. From then on, silence ends the connection: before, the user may be
// asked for a password.
func (l *link) heard() {
	if l.silent != nil {
		l.silent.Reset(l.silence)
		return
	}
	l.silent = time.AfterFunc(l.silence, func() {
		l.gone.Store(true)
		l.kill()
	})
}

// receive is like that of peer.
func (l *link) receive() (kind, []byte, error) {
	k, body, err := l.peer.receive()
	if err == nil {
		l.heard()
	}
	return k, body, err
}

// fail ends the connection, and returns why, given the error of the last attempt to use it.
func (l *link) fail(err error) error {
	said, ended := errors.As(err, new(hostError)), false
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, os.ErrClosed, syscall.EPIPE} {
		ended = ended || errors.Is(err, e)
	}
	if !said && !ended {
		return l.drop(err)
	}
	connected := l.silent != nil
	l.end() // its program's own end says more
	switch {
	case said:
		return err
	case !connected && l.err != nil:
		return fmt.Errorf("no connection (%s: %w)", l.name, l.err)
	case l.gone.Load():
		return fmt.Errorf("nothing was heard for %v: the connection is broken, and the run there ends", l.silence)
	case l.err != nil:
		return fmt.Errorf("the connection has ended before the result was there (%s: %w)", l.name, l.err)
	}
	return errors.New("the connection has ended before the result was there")
}

// drop ends the connection at once because of an error on this side, which it returns.
func (l *link) drop(err error) error {
	l.kill()
	l.end()
	return err
}

// end waits until the program has ended, so that nothing is left on the other side.
func (l *link) end() {
	if l.silent != nil {
		l.silent.Stop()
	}
	_ = l.in.Close()
	select {
	case <-l.ended:
	case <-time.After(lastEnd):
		l.kill()
		<-l.ended
	}
	_ = l.out.Close() // read-only
	if l.cleanUp != nil {
		l.cleanUp()
		l.cleanUp = nil
	}
}
