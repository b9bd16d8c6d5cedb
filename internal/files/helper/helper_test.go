package helper

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pair returns the ends of a connection.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		if ends[i], err = connect(os.NewFile(uintptr(fd), "socket")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

// Messages keep their bounds, bodies and descriptors, and a body that is too long is refused.
func TestMessages(t *testing.T) {
	type header struct{ N uint64 }
	a, b := pair(t)
	for n, body := range []string{"first", "", "third"} {
		if err := Send(a, header{uint64(n)}, []byte(body), int(os.Stdin.Fd())); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range []string{"first", "", "third"} {
		if ready, err := Await(b, NoLimit); !ready || err != nil {
			t.Fatalf("got %v, %v, want a message", ready, err)
		}
		var h header
		limit := len("first")
		if n == 2 {
			limit--
		}
		body, fds, err := Receive(b, &h, limit)
		if n == 2 {
			if !errors.Is(err, errTooLong) || len(fds) > 0 {
				t.Errorf("got %q, %v, %v, want %v", body, fds, err, errTooLong)
			}
			break
		}
		if err != nil || h.N != uint64(n) || string(body) != want || len(fds) != 1 {
			t.Errorf("got %d, %q, %v, %v; want %d, %q and a descriptor", h.N, body, fds, err, n, want)
		}
		Close(fds)
	}
	if ready, err := Await(a, 0); ready || err != nil {
		t.Errorf("got %v, %v, want no message", ready, err)
	}
}
