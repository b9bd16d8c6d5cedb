package safeopen

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
)

// operation is what this process or a helper does with the file of an O_PATH descriptor.
type operation struct {
	Code  opcode
	Flags uint32 // of opFind
	Off   int64
	Limit uint32 // bytes or names
}

type opcode uint32

const (
	opFind  opcode = iota // resolve a path in the directory; the answer is a descriptor
	opStat                // fstat(2)
	opType                // the type of file system, of fstatfs(2)
	opRead                // read, or only check for permission if the limit is 0
	opNames               // the names in the directory, each terminated by a NUL
)

// maxAnswer bounds an answer, in bytes. A directory is read in parts of namesPart names.
const (
	maxAnswer = 16 << 20
	namesPart = 4 << 10
)

// by carries out the operation on fd by the given access. A helper has no capabilities.
func (o operation) by(on access, fd int, name string, rights capability.Set) (body []byte, err error) {
	if on == helped {
		body, _, err = remotely(o, fd, "")
	} else {
		body, _, err = o.do(fd, name, rights)
	}
	return body, err
}

// do carries out the operation on fd in this process. It returns data or a descriptor. name is used in
// errors, and by opFind.
func (o operation) do(fd int, name string, rights capability.Set) (body []byte, found int, err error) {
	found = -1
	switch o.Code {
	case opFind:
		found, err = below(fd, name, o.Flags)
	case opStat:
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		body = unsafe.Slice((*byte)(unsafe.Pointer(&st)), unsafe.Sizeof(st))
	case opType:
		var on unix.Statfs_t
		err = unix.Fstatfs(fd, &on)
		body = binary.NativeEndian.AppendUint64(nil, uint64(on.Type))
	default:
		var file *os.File
		if file, err = reopen(fd, name, rights); err == nil {
			body, err = o.read(file)
			_ = file.Close() // read-only
		}
	}
	return body, found, err
}

// read reads from a file or directory.
func (o operation) read(file *os.File) (body []byte, err error) {
	if o.Code == opRead {
		body = make([]byte, min(o.Limit, maxAnswer))
		n, err := file.ReadAt(body, o.Off)
		if errors.Is(err, io.EOF) {
			err = nil // a short read
		}
		return body[:n], err
	}
	for left := int(o.Limit); left > 0 && len(body) < maxAnswer-namesPart*(unix.NAME_MAX+1); {
		names, err := file.Readdirnames(min(left, namesPart))
		for _, n := range names {
			body = append(append(body, n...), 0)
		}
		if left -= len(names); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return body, err
		}
	}
	return body, nil
}

// names splits the answer to opNames.
func names(body []byte, err error) ([]string, error) {
	if len(body) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(body), "\x00"), "\x00"), err
}

// status decodes the answer to opStat.
func status(body []byte, err error) (st unix.Stat_t, _ error) {
	if err == nil && len(body) != int(unsafe.Sizeof(st)) {
		err = unix.EIO
	}
	if err != nil {
		return st, err
	}
	return *(*unix.Stat_t)(unsafe.Pointer(&body[0])), nil
}

// look returns the fstat(2) of fd, an O_PATH descriptor.
func look(fd int, on access) (unix.Stat_t, error) {
	st, err := status(operation{Code: opStat}.by(on, fd, "", AsUser))
	return st, os.NewSyscallError("fstat", err)
}

// Look returns the fstat(2) of fd, an O_PATH descriptor, after reporting its file system
// to r.
func Look(r *Request, fd int) (st unix.Stat_t, err error) {
	on, err := reach(r, fd)
	if err != nil {
		return st, err
	}
	return look(fd, on)
}

// reopen opens the file of fd, an O_PATH descriptor, for reading with the given
// capabilities. name is used in errors. fd stays open.
func reopen(fd int, name string, rights capability.Set) (*os.File, error) {
	path := "/proc/self/fd/" + strconv.Itoa(fd)
	// O_NONBLOCK also avoids waiting for a lease on the file.
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	opened, err := capability.With(rights, func() (fd int, err error) {
		for err = unix.EINTR; err == unix.EINTR; {
			fd, err = unix.Open(path, flags, 0)
		}
		return fd, err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	// The Go runtime polls nonblocking files for readiness. FUSE forwards the
	// poll to its daemon, and the whole process would wait for the answer.
	if err := unix.SetNonblock(opened, false); err != nil {
		return nil, errors.Join(&os.PathError{Op: "open", Path: name, Err: err}, unix.Close(opened))
	}
	return os.NewFile(uintptr(opened), name), nil
}
