package process

import (
	"os"

	"golang.org/x/sys/unix"

	"fulgur/internal/answer"
)

// volume is what may fail to answer: a file system by its device number or, where
// that is not known yet, what a process sees.
type volume struct {
	maj, min uint32
	pid      int
}

// volume is where the file is.
func (k FileKey) volume() volume { return volume{maj: k.Maj, min: k.Min} }

// onDisk reports whether v is on a disk of this machine, which answers: what has
// none, as a network's file system, has a made-up device with major number 0.
func (v volume) onDisk() bool { return v.pid == 0 && v.maj != 0 }

// ask is [answer.Ask], but of a volume on a disk, which keeps nobody waiting.
func ask[T any](a *answer.Asker[volume], v volume, question func() (T, error), late func(T, error)) (T, error) {
	if v.onDisk() {
		return question()
	}
	return answer.Ask(a, v, question, late)
}

// distant is a file that is open for reading, whose volume may not answer.
type distant struct {
	*os.File
	on      volume
	answers *answer.Asker[volume]
}

// ReadAt implements [io.ReaderAt].
func (d distant) ReadAt(b []byte, off int64) (int, error) {
	if d.on.onDisk() {
		return d.File.ReadAt(b, off)
	}
	// A read that was given up may still write to its buffer.
	type read struct {
		b []byte
		n int
	}
	got, err := ask(d.answers, d.on, func() (read, error) {
		r := read{b: make([]byte, len(b))}
		var err error
		r.n, err = d.File.ReadAt(r.b, off)
		return r, err
	}, func(read, error) {}) // nobody waits for it
	return copy(b, got.b[:got.n]), err
}

// stat returns what fstat(2) does.
func (d distant) stat() (unix.Stat_t, error) {
	return ask(d.answers, d.on, func() (st unix.Stat_t, err error) {
		conn, err := d.SyscallConn() // while a call is on its way, others may close the file
		if err != nil {
			return st, err
		}
		if closed := conn.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); closed != nil {
			return st, closed
		}
		return st, os.NewSyscallError("fstat", err)
	}, func(unix.Stat_t, error) {}) // nobody waits for it
}

// Close closes the file, or has it closed once its volume answers.
func (d distant) Close() error {
	if d.on.onDisk() {
		return d.File.Close()
	}
	return answer.Close(d.answers, d.on, d.File)
}
