package process

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"fulgur/internal/files/tempfile"
)

// spool keeps copies of files that others may truncate at any time, in one unnamed
// temporary file rather than in memory.
type spool struct {
	file        *os.File // nil until the first append
	size, limit int64
}

// spoolLimit bounds the copies, in bytes, because the writers of the files may never stop.
const spoolLimit = 256 << 20

// append copies n bytes of r to the end of the spool, or fewer if r ends or the spool reaches
// its limit.
func (s *spool) append(r io.Reader, n int64) (copied int64, err error) {
	if s.file == nil {
		if s.file, err = tempfile.Create(); err != nil {
			return 0, fmt.Errorf("copy names of JIT-compiled code: %w", err)
		}
	}
	room := s.limit - s.size
	copied, err = io.Copy(io.NewOffsetWriter(s.file, s.size), io.LimitReader(r, min(n, room)))
	s.size += copied
	if err != nil {
		return copied, fmt.Errorf("copy names of JIT-compiled code: %w", err)
	}
	if n > room {
		return copied, fmt.Errorf("copy names of JIT-compiled code: more than %d bytes", s.limit)
	}
	return copied, nil
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// spooled is a copy of the beginning of a growing file, or of parts of it. Once it is
// complete, it is safe for concurrent reads.
type spooled struct {
	in     *spool
	chunks []chunk
	size   int64
}

// chunk is size bytes of a file at offset off, which are in the spool at offset at.
type chunk struct{ off, at, size int64 }

// append copies the next n bytes from r.
func (f *spooled) append(r io.Reader, n int64) error {
	at := f.in.size
	copied, err := f.in.append(r, n)
	if last := len(f.chunks) - 1; last >= 0 && f.chunks[last].at+f.chunks[last].size == at {
		f.chunks[last].size += copied
	} else {
		f.chunks = append(f.chunks, chunk{f.size, at, copied})
	}
	f.size += copied
	return err
}

// ReadAt implements io.ReaderAt.
func (f *spooled) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	i, _ := slices.BinarySearchFunc(f.chunks, off, func(c chunk, off int64) int { return cmp.Compare(c.off+c.size, off+1) })
	for ; n < len(b) && i < len(f.chunks); i++ {
		c := f.chunks[i]
		skip := off + int64(n) - c.off
		part := b[n:min(int64(len(b)), int64(n)+c.size-skip)]
		read, err := f.in.file.ReadAt(part, c.at+skip)
		n += read
		if read < len(part) {
			return n, err
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// clone returns a copy that does not change when f grows.
func (f *spooled) clone() spooled {
	return spooled{in: f.in, chunks: slices.Clone(f.chunks), size: f.size}
}
