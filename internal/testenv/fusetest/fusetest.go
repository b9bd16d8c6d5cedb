// Package fusetest mounts a file system whose server can be made to stop responding.
package fusetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// fuseVar turns a test's binary into the server of a file system. It holds the path of
// the file to serve. The server's standard input is /dev/fuse.
const fuseVar = "FUSETEST_FILE"

func init() {
	if path := os.Getenv(fuseVar); path != "" {
		if err := serveFUSE(os.Stdin, path); err != nil {
			fmt.Fprintln(os.Stderr, "fuse:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// File returns the path of a new file with the given content, to mount.
func File(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Mount mounts a file system whose only file is a copy of path. It returns the file and a
// function that stops the server: it no longer responds until the test is over. The
// kernel does not cache attributes, so every stat asks the server. The test is skipped
// where there is no FUSE.
func Mount(t *testing.T, path string) (file string, stop func()) {
	t.Helper()
	file, stop, _ = mount(t, path)
	return file, stop
}

// MountMute is like [Mount] with a server that can be made to accept all requests and
// answer none. Not even SIGKILL ends the wait for these.
func MountMute(t *testing.T, path string) (file string, mute func()) {
	t.Helper()
	file, _, mute = mount(t, path)
	return file, mute
}

// UntilAnswered repeats ask until its error is not noAnswer, and returns that error. Use it while
// the server responds: on a slow machine, an answer may take longer than its time limit.
func UntilAnswered(t *testing.T, noAnswer error, ask func() error) (err error) {
	t.Helper()
	testenv.Await(t, func() bool {
		err = ask()
		return !errors.Is(err, noAnswer)
	}, func() string { return fmt.Sprintf("a file system that responds: %v", err) })
	return err
}

func mount(t *testing.T, path string) (file string, stop, mute func()) {
	t.Helper()
	if err := testenv.LoadModule("fuse"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		testenv.Skip(t, "needs FUSE: %v", err)
	}
	defer dev.Close()
	dir := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", dev.Fd())
	if err := unix.Mount("hostile", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatalf("mount: %v", err)
	}
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), fuseVar+"="+path)
	server.Stdin, server.Stderr = dev, os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The end of the server unblocks all processes that wait for it.
		_ = server.Process.Kill()
		_ = server.Wait()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	file = filepath.Join(dir, "program")
	// A server that has just started is slow to answer. If it never does, its end unblocks stat.
	answer := make(chan error, 1)
	go func() {
		_, err := os.Stat(file)
		answer <- err
	}()
	if err := testenv.Receive(t, answer, "the server does not answer its first request"); err != nil {
		t.Fatal(err)
	}
	signal := func(sig os.Signal) {
		t.Helper()
		if err := server.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	stop = func() {
		t.Helper()
		signal(unix.SIGSTOP)
	}
	mute = func() {
		t.Helper()
		signal(muteSignal)
		isMute := make(chan error, 1)
		go func() {
			_, err := out.Read(make([]byte, 1))
			isMute <- err
		}()
		if err := testenv.Receive(t, isMute, "the server does not become mute"); err != nil {
			t.Fatal(err)
		}
	}
	return file, stop, mute
}

// muteSignal makes the server mute. The server then writes a byte to its standard output.
const muteSignal = unix.SIGUSR1

// Request numbers and sizes, from linux/fuse.h.
const (
	fuseLookup     = 1
	fuseForget     = 2
	fuseGetattr    = 3
	fuseOpen       = 14
	fuseRead       = 15
	fuseRelease    = 18
	fuseFlush      = 25
	fuseInit       = 26
	fuseInterrupt  = 36
	fuseDestroy    = 38
	fuseInHeader   = 40
	fuseRoot       = 1 // inode of the root directory
	fuseProgram    = 2 // inode of the file
	fuseKeepCache  = 2 // FOPEN_KEEP_CACHE
	fuseAttrSize   = 88
	fuseMaxRequest = 1 << 20
)

// serveFUSE answers the requests from dev until it is unmounted.
func serveFUSE(dev *os.File, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var mute atomic.Bool
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, muteSignal)
	go func() {
		<-signals
		mute.Store(true)
		_, _ = os.Stdout.Write([]byte{'.'})
	}()
	request := make([]byte, fuseMaxRequest)
	for {
		n, err := unix.Read(int(dev.Fd()), request)
		switch {
		case errors.Is(err, unix.ENODEV):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return err
		case n < fuseInHeader:
			return io.ErrUnexpectedEOF
		}
		reply, errno, answers := answerFUSE(request[:n], content)
		if !answers || mute.Load() {
			continue
		}
		header := binary.NativeEndian.AppendUint32(nil, uint32(16+len(reply)))
		header = binary.NativeEndian.AppendUint32(header, uint32(-int32(errno)))
		header = append(header, request[8:16]...) // the request's ID
		if _, err := unix.Write(int(dev.Fd()), append(header, reply...)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
}

// answerFUSE answers a request, if it needs an answer.
func answerFUSE(request, content []byte) (reply []byte, errno unix.Errno, answers bool) {
	native := binary.NativeEndian
	body := request[fuseInHeader:]
	inode := native.Uint64(request[16:])
	attributes := func(inode uint64) []byte {
		mode, size := uint32(unix.S_IFDIR|0o755), 0
		if inode == fuseProgram {
			mode, size = unix.S_IFREG|0o755, len(content)
		}
		b := native.AppendUint64(nil, inode)
		b = native.AppendUint64(b, uint64(size))
		b = append(b, make([]byte, 8+3*8+3*4)...) // blocks, times
		b = native.AppendUint32(b, mode)
		b = native.AppendUint32(b, 1) // links
		return append(b, make([]byte, fuseAttrSize-len(b))...)
	}
	switch native.Uint32(request[4:]) {
	case fuseInit:
		b := native.AppendUint32(nil, 7)
		b = native.AppendUint32(b, 31)
		b = append(b, make([]byte, 16)...)
		native.PutUint32(b[16:], 0)
		b = native.AppendUint32(b, 64<<10) // maximum write size
		return append(b, make([]byte, 64-len(b))...), 0, true
	case fuseLookup:
		if inode != fuseRoot || string(body) != "program\x00" {
			return nil, unix.ENOENT, true
		}
		b := native.AppendUint64(nil, fuseProgram)
		b = append(b, make([]byte, 32)...) // generation, validity: 0
		return append(b, attributes(fuseProgram)...), 0, true
	case fuseGetattr:
		return append(make([]byte, 16), attributes(inode)...), 0, true
	case fuseOpen:
		b := make([]byte, 16)
		native.PutUint32(b[8:], fuseKeepCache)
		return b, 0, true
	case fuseRead:
		offset, size := native.Uint64(body[8:]), uint64(native.Uint32(body[16:]))
		offset = min(offset, uint64(len(content)))
		return content[offset:min(offset+size, uint64(len(content)))], 0, true
	case fuseRelease, fuseFlush:
		return nil, 0, true
	case fuseForget, fuseInterrupt, fuseDestroy:
		return nil, 0, false
	}
	return nil, unix.ENOSYS, true
}
