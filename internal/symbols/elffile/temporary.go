package elffile

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/tempfile"
)

// maxTemporary bounds the total size of the process's temporary files, in bytes: twice
// the debug info of the largest programs.
const maxTemporary = 16 << 30

// temporaryBudget is shared by all files of the process. A limit per file would be
// ineffective, because an attacker can provide many files.
var temporaryBudget = budget{limit: maxTemporary, free: freeSpace}

// budget bounds the bytes in temporary files, and leaves at least half of the disk space
// that is free without them.
type budget struct {
	limit uint64
	// free returns the free space in a file's file system, in bytes.
	free func(*os.File) (uint64, error)

	mu   sync.Mutex
	used uint64
}

// reserve reserves n bytes for file. It fails if they exceed the budget.
func (b *budget) reserve(file *os.File, n uint64) error {
	free, err := b.free(file)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.limit || b.used > b.limit-n {
		return fmt.Errorf("temporary files would hold more than %d bytes", b.limit)
	}
	if b.used+n > (free+b.used)/2 {
		return errors.New("temporary files would take more than half of the free space")
	}
	b.used += n
	return nil
}

// release releases n bytes.
func (b *budget) release(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// freeSpace returns how many bytes unprivileged users can still write to the file's file
// system.
func freeSpace(file *os.File) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &st); err != nil {
		return 0, os.NewSyscallError("fstatfs", err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// temporary is a file within a budget. It wraps its errors in [storeError], to
// distinguish them from decompression errors.
type temporary struct {
	file   *os.File
	budget *budget
	taken  uint64
}

func newTemporary(b *budget) (*temporary, error) {
	file, err := tempfile.Create()
	if err != nil {
		return nil, &storeError{err}
	}
	return &temporary{file: file, budget: b}, nil
}

// Write implements io.Writer.
func (t *temporary) Write(b []byte) (int, error) {
	if err := t.budget.reserve(t.file, uint64(len(b))); err != nil {
		return 0, &storeError{err}
	}
	t.taken += uint64(len(b))
	n, err := t.file.Write(b)
	if err != nil {
		return n, &storeError{err}
	}
	return n, nil
}

// Close removes the file.
func (t *temporary) Close() error {
	err := t.file.Close()
	t.budget.release(t.taken)
	t.taken = 0
	return err
}
