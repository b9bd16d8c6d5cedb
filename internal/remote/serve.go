package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/child"
	"fulgur/internal/message/plain"
)

// Host is the side that measures.
type Host struct {
	// Version is the version of this program.
	Version string
	// Command returns the program that carries out an order, which writes its files to a folder.
	Command func(o Order, folder string) *exec.Cmd

	silence time.Duration // 0 means defaultSilence
}

// errGone is the error of a connection that has ended, or on which the other side says nothing any more.
var errGone = errors.New("the other side has gone")

// Serve carries out one order. It reads messages from in, and writes them to out. When the order has
// ended, it sends the files and the exit code. If the input ends before, or nothing comes for a minute, or
// on SIGTERM and SIGHUP, it ends the program and discards the files.
//
// Nothing stays behind: the folder of the files is removed, and so are the program's processes, except
// those that put themselves into a group of their own.
func (h *Host) Serve(in io.Reader, out io.Writer) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGTERM, unix.SIGHUP, unix.SIGINT)
	// A write to a connection that has ended must not end this process. A child would inherit an ignored
	// signal.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s := server{peer: newPeer(in, out), host: h, messages: make(chan message), ended: ended, silence: h.silence}
	if s.silence == 0 {
		s.silence = defaultSilence
	}
	go s.listen(ctx)
	return s.serve(ctx)
}

// message is a received message.
type message struct {
	kind kind
	body []byte
}

// server serves one order.
type server struct {
	*peer
	host     *Host
	messages chan message // closed when the input ends
	ended    <-chan os.Signal
	silence  time.Duration
}

// listen receives messages until the input ends or ctx is done.
func (s *server) listen(ctx context.Context) {
	defer close(s.messages)
	for {
		k, body, err := s.receive()
		if err != nil {
			return // nobody is there any more, or it is not fulgur
		}
		select {
		case s.messages <- message{k, body}:
		case <-ctx.Done():
			return
		}
	}
}

// next waits for a message, or until done is closed, which returns the zero value.
func (s *server) next(done <-chan struct{}) (message, error) {
	silent := time.NewTimer(s.silence)
	defer silent.Stop()
	select {
	case m, ok := <-s.messages:
		if !ok {
			return message{}, errGone
		}
		return m, nil
	case <-silent.C:
		return message{}, errGone
	case <-s.ended:
		return message{}, errGone
	case <-done:
		return message{}, nil
	}
}

// serve waits for the order, and carries it out. It says nothing before it is asked: what it writes before
// the other side is there may be lost.
func (s *server) serve(ctx context.Context) (err error) {
	var o Order
	for m := (message{}); m.kind != order; {
		if m, err = s.next(nil); err != nil {
			return err
		}
		switch m.kind {
		case hello:
			if err := s.send(hello, []byte(s.host.Version)); err != nil {
				return err
			}
			go s.beat(ctx)
		case order:
			if err := json.Unmarshal(m.body, &o); err != nil {
				return errGarbled
			}
		}
	}
	code, err := s.measure(o)
	if errors.Is(err, errGone) {
		return err
	}
	if err != nil {
		text := "fulgur: " + plain.Error(err) + "\n"
		if err := s.sendText(stderr, []byte(text)); err != nil {
			return err
		}
		code = max(code, 1)
	}
	return s.send(exited, strconv.AppendInt(nil, int64(code), 10))
}

// measure runs the program of an order, and sends its files.
func (s *server) measure(o Order) (code int, err error) {
	dir, err := makeFolder()
	if err != nil {
		return 0, err
	}
	defer func() {
		// Before the other side hears of the end, so that nothing is left then.
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err := s.send(folder, []byte(dir)); err != nil {
		return 0, errGone
	}
	code, err = s.run(s.host.Command(o, dir))
	if err != nil {
		return code, err
	}
	return code, s.while(func() error { return s.sendFiles(dir) })
}

// while does work while the other side is there. Work that waits for a connection then continues until this
// process ends.
func (s *server) while(work func() error) (err error) {
	done := make(chan struct{})
	go func() {
		err = work()
		close(done)
	}()
	for {
		if _, gone := s.next(done); gone != nil {
			return gone
		}
		select {
		case <-done:
			return err
		default:
		}
	}
}

// makeFolder makes a folder that only this user can enter, for the files of a measurement. They are too
// large for memory, where /tmp often is.
func makeFolder() (dir string, err error) {
	const pattern = "fulgur-"
	if os.Getenv("TMPDIR") == "" {
		if dir, err = os.MkdirTemp("/var/tmp", pattern); err == nil {
			return dir, nil
		}
	}
	if dir, err = os.MkdirTemp("", pattern); err != nil {
		return "", fmt.Errorf("make a folder for the files of the measurement: %w", err)
	}
	return dir, nil
}

// lastOutput is how long the rest of a program's output may take after its end. It is longer only if the
// program has left others that have its output.
const lastOutput = 30 * time.Second

// run runs a program, and passes on its output, and interrupts to it.
func (s *server) run(cmd *exec.Cmd) (code int, err error) {
	cmd.Stdout, cmd.Stderr = writer{s.peer, stdout}, writer{s.peer, stderr}
	cmd.WaitDelay = lastOutput
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(cmd); err != nil {
		return 0, err
	}
	over := make(chan struct{})
	go func() {
		err = cmd.Wait()
		close(over)
	}()
	for {
		m, gone := s.next(over)
		switch {
		case gone != nil:
			end(cmd.Process.Pid, over)
			return 0, gone
		case m.kind == interrupt:
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		case m.kind != 0:
			continue
		}
		select {
		case <-over:
			return exitCode(cmd.ProcessState, err)
		default:
		}
	}
}

// exitCode returns the exit code of a program, as a shell does, and an error if it was killed. err is that
// of [exec.Cmd.Wait].
func exitCode(state *os.ProcessState, err error) (int, error) {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return 128 + int(status.Signal()), fmt.Errorf("the measurement was ended: %v", status.Signal())
	case err != nil && !errors.As(err, new(*exec.ExitError)):
		return state.ExitCode(), fmt.Errorf("not all of the output was passed on: %w", err)
	}
	return state.ExitCode(), nil
}

// end ends a program whose result nobody wants any more, and what it has started. It asks as Ctrl-C does,
// so that fulgur ends the command that it measures. The second Ctrl-C skips the lookup of names.
func end(pid int, over <-chan struct{}) {
	for _, step := range []struct {
		to     int
		signal unix.Signal
		wait   time.Duration
	}{
		{pid, unix.SIGINT, 5 * time.Second},
		{pid, unix.SIGINT, 5 * time.Second},
		{-pid, unix.SIGTERM, 5 * time.Second},
		{-pid, unix.SIGKILL, lastOutput},
	} {
		_ = unix.Kill(step.to, step.signal) // it may have ended
		select {
		case <-over:
			_ = unix.Kill(-pid, unix.SIGKILL) // what the command has left
			return
		case <-time.After(step.wait):
		}
	}
}

// fileInfo describes a file that follows.
type fileInfo struct {
	Name string // below the folder
	Size int64
}

// sendFiles sends the regular files of a folder.
func (s *server) sendFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return s.sendFile(path, name)
	})
}

// sendFile sends a file, with the name that the other side knows.
func (s *server) sendFile(path, name string) (err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := s.sendValue(fileName, fileInfo{name, info.Size()}); err != nil {
		return errGone
	}
	if _, err := io.Copy(writer{s.peer, fileData}, io.LimitReader(f, info.Size())); err != nil {
		return err
	}
	if s.send(fileEnd, nil) != nil {
		return errGone
	}
	return nil
}
