// Package helper runs parts of this program in processes of their own, which work on descriptors of
// files. A helper is this program, started under another name, and answers requests on a socket. It
// ends when the other end of the socket is closed, also because this process was killed.
package helper

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is the helper's descriptor of the socket.
const socket = 3

// maxDescriptors bounds the descriptors of a message.
const maxDescriptors = 4

// Serve runs serve and exits if this process was started as the helper with the given name. It
// must be called by an init function.
func Serve(name string, serve func(*net.UnixConn) error) {
	if len(os.Args) == 0 || os.Args[0] != name {
		return
	}
	// Ctrl-C on the terminal is meant for the parent process.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if conn, err := connect(os.NewFile(socket, name)); err == nil {
		_ = serve(conn) // the socket is closed, or not ours
	}
	os.Exit(0)
}

// Start starts the helper with the given name. ended is closed when it has ended.
func Start(name string) (conn *net.UnixConn, ended <-chan struct{}, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), name)
	conn, err = connect(os.NewFile(uintptr(pair[0]), name))
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	cmd := exec.Cmd{
		Path: "/proc/self/exe", Args: []string{name}, Dir: "/",
		ExtraFiles: []*os.File{theirs}, // the first is socket
		// No terminal session waits for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	if err := errors.Join(err, theirs.Close()); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its exit status does not matter
		close(done)
	}()
	return conn, done, nil
}

// connect returns the connection of the socket file, and closes file.
func connect(file *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(unix.ENOTSOCK, conn.Close())
	}
	return unixConn, nil
}

// Send sends a message: a header of a fixed size, a body, and descriptors.
func Send[T any](conn *net.UnixConn, header T, body []byte, fds ...int) error {
	b, err := binary.Append(binary.NativeEndian.AppendUint32(nil, uint32(len(body))), binary.NativeEndian, header)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(b, rights, nil)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil && len(body) > 0 {
		_, err = conn.Write(body)
	}
	if errors.Is(err, unix.EPIPE) {
		return io.ErrUnexpectedEOF // EPIPE means that the reader of the output has left
	}
	return err
}

// NoLimit is no limit for [Await].
const NoLimit time.Duration = -time.Millisecond

// Await waits for a message in a system call, up to a limit in milliseconds. Waiting by [Receive] alone
// depends on Go's scheduler. Await reports whether there is a message, or the connection was closed.
func Await(conn *net.UnixConn, limit time.Duration) (ready bool, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false, err
	}
	if e := raw.Control(func(fd uintptr) {
		n := 0
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit.Milliseconds()))
		}
		ready = n > 0
	}); e != nil {
		return false, e
	}
	return ready, err
}

var errTooLong = errors.New("a message is longer than expected")

// Receive receives a message with a body of up to limit bytes. The descriptors belong to the caller.
func Receive[T any](conn *net.UnixConn, header *T, limit int) (body []byte, fds []int, err error) {
	b, rights := make([]byte, 4+binary.Size(header)), make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, size, _, _, err := conn.ReadMsgUnix(b, rights)
	if err != nil {
		return nil, nil, err
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:size]); err == nil && len(messages) > 0 {
		fds, _ = unix.ParseUnixRights(&messages[0]) // none if it is another message
	}
	if _, err = io.ReadFull(conn, b[n:]); err == nil {
		_, err = binary.Decode(b[4:], binary.NativeEndian, header)
	}
	if length := binary.NativeEndian.Uint32(b); err == nil && int64(length) > int64(limit) {
		err = errTooLong
	} else if err == nil {
		body = make([]byte, length)
		_, err = io.ReadFull(conn, body)
	}
	if err != nil {
		Close(fds)
		return nil, nil, err
	}
	return body, fds, nil
}

// Close closes descriptors that were received.
func Close(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was written
	}
}
