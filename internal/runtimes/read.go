package runtimes

import (
	"errors"

	"fulgur/internal/bpf"
)

// ErrNotReady means that the runtime of a process has not started yet.
var ErrNotReady = errors.New("the runtime has not started yet")

// UnknownError is the reason why fulgur cannot read the frames of a process's runtime.
type UnknownError string

func (e UnknownError) Error() string { return string(e) }

// Sum returns the hash of words that the kernel side computes with hash_step() of bpf/hash.h,
// starting from first.
func Sum(first uint64, words ...uint64) uint64 {
	hash := first
	for _, w := range words {
		hash = (hash ^ w) * bpf.HashMultiplier
		hash ^= hash >> 29
	}
	return hash
}

// Hash returns the upper half of [Sum].
func Hash(first uint64, words ...uint64) uint32 { return uint32(Sum(first, words...) >> 32) }

// Memory reads the memory of a process.
type Memory interface {
	// Read fills b with the bytes from an address on. The error wraps unix.EFAULT if the
	// process has no memory there. After other errors, a later attempt may succeed.
	Read(b []byte, addr uint64) error
}

// Reader reads functions from the memory of a process, for runtimes whose kernel side only
// identifies functions. It is not safe for concurrent use.
type Reader interface {
	// Places returns the functions of a frame, innermost first: several if the compiler
	// inlined calls. It returns none if the function is gone, or if the frame has no identity
	// and the runtime has no name for such code. final is false if a later call may return
	// more, because the memory could not be read in time.
	Places(f Frame) (places []Place, final bool)
	// Kept returns the approximate size of the reader's caches, in bytes.
	Kept() int
}

// Frame is a frame of a runtime as the kernel side records it. A native frame in code that is not
// in a file, and that the kernel side did not identify, has no address.
type Frame struct {
	Identity
	// Position is the position in the code, or -1 if it is unknown.
	Position int
	// PC is an address in the current instruction or call of the native frame. Compiled means
	// that this code is not in a file.
	PC       uint64
	Compiled bool
}

// Place is a function, and a line in it: 1-based, or 0 if unknown.
type Place struct {
	Function Code
	Line     int
}
