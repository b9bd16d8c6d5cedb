package safeopen

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
)

// A thread that waits for FUSE cannot be killed once the daemon has read its request, and
// until it returns its process cannot end: neither by exit(2) nor by SIGKILL. So this
// process never accesses a FUSE file system or an unknown one. A helper process does so
// instead and may stay behind. The helper is this program started under the name
// helperName, and reads requests from its socket.
//
// Each request carries at most one O_PATH descriptor, and is answered before the next one
// is sent. A user may run the helper too: it has only the user's privileges.

// helperName is the helper's name (argv[0]), and helperSocket its socket.
const (
	helperName   = "fulgur-files"
	helperSocket = 3
)

// operation is the operation of a request on its descriptor.
type operation uint32

const (
	opFind  operation = iota // resolve a path in the directory; the reply carries a descriptor
	opStat                   // fstat(2)
	opType                   // the type of file system, of fstatfs(2)
	opRead                   // read, or only check for permission if the size is 0
	opNames                  // the names in the directory, each terminated by a NUL
)

// request is followed by the path, and reply by the data.
type request struct {
	Op    operation
	Flags uint32 // of opFind
	Off   int64
	Limit uint32 // bytes or names
	Size  uint32 // of the path
}

type reply struct {
	Errno uint32
	Size  uint32
}

// maxReply bounds a reply of the helper, in bytes.
const maxReply = 16 << 20

func init() {
	if len(os.Args) > 0 && os.Args[0] == helperName {
		_ = serve() // the socket is closed, or not ours
		os.Exit(0)
	}
}

// serve is the helper's main loop.
func serve() error {
	// Ctrl-C on the terminal is meant for the parent process.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := capability.Drop(); err != nil {
		return err
	}
	conn, err := socket(os.NewFile(helperSocket, helperName))
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		var r request
		fd, err := receive(conn, &r)
		if err != nil {
			return err
		}
		name := make([]byte, min(r.Size, unix.PathMax))
		if _, err := io.ReadFull(conn, name); err != nil {
			return err
		}
		body, found, err := r.do(fd, string(name))
		var errno unix.Errno
		switch {
		case err == nil:
		case !errors.As(err, &errno):
			errno = unix.EIO
		}
		answer := reply{Errno: uint32(errno), Size: uint32(len(body))}
		err = send(conn, answer, body, found)
		for _, used := range []int{fd, found} {
			if used >= 0 {
				_ = unix.Close(used) // O_PATH
			}
		}
		if err != nil {
			return err
		}
	}
}

// do carries out the request on fd. It returns the data read, or a descriptor.
func (r *request) do(fd int, name string) (body []byte, found int, err error) {
	switch r.Op {
	case opFind:
		found, err = below(fd, name, int(r.Flags))
		return nil, found, err
	case opStat:
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		return unsafe.Slice((*byte)(unsafe.Pointer(&st)), unsafe.Sizeof(st)), -1, err
	case opType:
		var on unix.Statfs_t
		err = unix.Fstatfs(fd, &on)
		return binary.NativeEndian.AppendUint64(nil, uint64(on.Type)), -1, err
	}
	file, err := reopenWith(fd, name)
	if err != nil {
		return nil, -1, err
	}
	defer func() { _ = file.Close() }() // read-only
	if r.Op == opNames {
		names, err := file.Readdirnames(int(min(max(r.Limit, 1), maxReply/unix.NAME_MAX)))
		if errors.Is(err, io.EOF) {
			err = nil
		}
		for _, n := range names {
			body = append(append(body, n...), 0)
		}
		return body[:min(len(body), maxReply)], -1, err
	}
	body = make([]byte, min(r.Limit, maxReply))
	n, err := file.ReadAt(body, r.Off)
	if errors.Is(err, io.EOF) {
		err = nil // a short read
	}
	return body[:n], -1, err
}

// socket returns the connection of the socket file, and closes file.
func socket(file *os.File) (*net.UnixConn, error) {
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

// send sends a header, its body, and a descriptor unless fd is negative.
func send[T any](conn *net.UnixConn, header T, body []byte, fd int) error {
	b, err := binary.Append(nil, binary.NativeEndian, header)
	if err != nil {
		return err
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if n, _, err := conn.WriteMsgUnix(b, rights, nil); err != nil || n < len(b) {
		return errors.Join(err, io.ErrShortWrite)
	}
	_, err = conn.Write(body)
	return err
}

// receive receives a header, and a descriptor or -1.
func receive[T any](conn *net.UnixConn, header *T) (fd int, err error) {
	b, rights := make([]byte, binary.Size(header)), make([]byte, unix.CmsgSpace(4))
	n, size, _, _, err := conn.ReadMsgUnix(b, rights)
	if err != nil {
		return -1, err
	}
	fd = -1
	if messages, err := unix.ParseSocketControlMessage(rights[:size]); err == nil && len(messages) > 0 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) > 0 {
			fd = fds[0]
		}
	}
	if _, err = io.ReadFull(conn, b[n:]); err == nil {
		_, err = binary.Decode(b, binary.NativeEndian, header)
	}
	if err != nil && fd >= 0 {
		_ = unix.Close(fd)
	}
	return fd, err
}

// names splits the reply to opNames.
func names(body []byte) []string {
	if len(body) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(body), "\x00"), "\x00")
}
