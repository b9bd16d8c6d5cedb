package safeopen

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/helper"
)

// A thread that waits for FUSE cannot be killed once the daemon has read its request, and
// until it returns its process cannot end: neither by exit(2) nor by SIGKILL. So this
// process never accesses a FUSE file system or an unknown one. A helper process does so
// instead and may stay behind.
//
// Each request carries at most one O_PATH descriptor, and is answered before the next one
// is sent. A user may run the helper too: it has only the user's privileges.

// helperName is the helper's name.
const helperName = "fulgur-files"

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

func init() { helper.Serve(helperName, serve) }

// serve is the helper's main loop.
func serve(conn *net.UnixConn) error {
	if err := capability.Drop(); err != nil {
		return err
	}
	if err := helper.Send(conn, reply{}, nil); err != nil { // a greeting
		return err
	}
	for {
		var r request
		fds, err := helper.Receive(conn, &r)
		if err != nil {
			return err
		}
		name := make([]byte, min(r.Size, unix.PathMax))
		if _, err := io.ReadFull(conn, name); err != nil {
			return err
		}
		body, found, err := r.do(first(fds), string(name))
		var errno unix.Errno
		switch {
		case err == nil:
		case !errors.As(err, &errno):
			errno = unix.EIO
		}
		var answers []int
		if found >= 0 {
			answers = append(answers, found)
		}
		err = helper.Send(conn, reply{Errno: uint32(errno), Size: uint32(len(body))}, body, answers...)
		helper.Close(append(fds, answers...))
		if err != nil {
			return err
		}
	}
}

// first returns the first of the descriptors received, or -1.
func first(fds []int) int {
	if len(fds) == 0 {
		return -1
	}
	return fds[0]
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

// names splits the reply to opNames.
func names(body []byte) []string {
	if len(body) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(body), "\x00"), "\x00")
}
