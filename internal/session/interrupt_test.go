package session

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/testenv"
)

// keyboard interrupts contexts as Ctrl-C does.
type keyboard struct {
	mu        sync.Mutex
	listening []context.CancelFunc
	listens   chan struct{} // receives a value for each new context
}

func newKeyboard() *keyboard { return &keyboard{listens: make(chan struct{}, 100)} }

func (k *keyboard) interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listening = append(k.listening, cancel)
	k.listens <- struct{}{}
	return ctx, cancel
}

// interrupt ends all contexts.
func (k *keyboard) interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, cancel := range k.listening {
		cancel()
	}
	k.listening = nil
}

// A write that began during the measurement outlives the interrupt that ends it. The next one
// ends its waits.
func TestPatience(t *testing.T) {
	k := newKeyboard()
	r := &run{options: &Options{}, sampled: make(chan struct{})}
	r.options.Interruptible = func(ctx context.Context) (context.Context, func()) {
		select {
		case <-r.sampled:
		default:
			t.Error("an interrupt during sampling would end the wait")
		}
		return k.interruptible(ctx)
	}
	began, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- r.untilInterrupt(func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	testenv.Receive(t, began, "the write has not begun")
	close(r.sampled)
	testenv.Receive(t, k.listens, "nothing waits for an interrupt")
	k.interrupt()
	if err := testenv.Receive(t, ended, "the wait has not ended"); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
}

// An interrupt ends the wait for the reader of the profile, whether or not another has ended the
// measurement.
func TestProfileUnread(t *testing.T) {
	for name, interrupted := range map[string]bool{"time is over": false, "interrupted": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pipe.pb.gz")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			fill(t, r)
			k := newKeyboard()
			w := newTestWindows(t, 0, stackstest.Own(t), nil)
			w.run.options.Output, w.run.options.Interruptible = path, k.interruptible
			to, err := newProfileFile(w.run.options)
			if err != nil {
				t.Fatal(err)
			}
			ctx, _ := k.interruptible(t.Context())
			<-k.listens
			if err := to.Open(ctx); err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			w.sink = to
			if interrupted {
				k.interrupt()
			} else {
				w.run.loop.Limit = time.Millisecond
			}
			ended := make(chan error, 1)
			go func() { ended <- w.run.measure(ctx, nil) }()
			if interrupted {
				testenv.Receive(t, k.listens, "nothing can interrupt the lookup of names")
			}
			testenv.Receive(t, k.listens, "nothing can interrupt the wait for the reader")
			k.interrupt()
			if err := testenv.Receive(t, ended, "the wait for the reader has not ended"); !errors.Is(err, ctxfile.ErrUnread) {
				t.Errorf("got error %v, want %v", err, ctxfile.ErrUnread)
			}
		})
	}
}

// The same applies to a stream.
func TestStreamUnread(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fill(t, w)
	k := newKeyboard()
	s := newTestStreaming(t, stackstest.Own(t), io.Discard)
	s.run.options.Stdout, s.run.options.Interruptible, s.out.options = w, k.interruptible, s.run.options
	if err := s.out.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run.sampled = make(chan struct{})
	if err := s.handleEvent(0, event(1)); err != nil {
		t.Fatal(err)
	}
	s.put()
	s.run.queue.end()
	ended := make(chan struct{})
	go func() {
		s.run.queue.write(t.Context())
		close(ended)
	}()
	close(s.run.sampled)
	testenv.Receive(t, k.listens, "nothing can interrupt the wait for the reader")
	k.interrupt()
	testenv.Receive(t, ended, "the wait for the reader has not ended")
	if err := s.run.queue.failed(); !errors.Is(err, ctxfile.ErrUnread) {
		t.Errorf("got error %v, want %v", err, ctxfile.ErrUnread)
	}
}

// fill fills a pipe.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	conn, err := pipe.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Control(func(fd uintptr) {
		for err == nil {
			_, err = unix.Write(int(fd), make([]byte, 4096))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
}

// An interrupt ends the wait for a first reader of the output.
func TestOpenUnread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.pb.gz")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		opened <- (&outputFile{options: &Options{Output: path}}).Open(ctx)
	}()
	interrupt()
	if err := testenv.Receive(t, opened, "the wait for a reader has not ended"); !errors.Is(err, ctxfile.ErrNoReader) {
		t.Errorf("got error %v, want %v", err, ctxfile.ErrNoReader)
	}
}
