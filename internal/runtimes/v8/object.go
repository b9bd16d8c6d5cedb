package v8

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/runtimes"
)

// errLayout is returned for data that V8 would not write.
var errLayout = errors.New("unexpected V8 object")

// errMoved is returned if the garbage collector may have moved an object while it was read.
var errMoved = errors.New("V8 moved an object")

// answered reports whether the memory could be read: err is nil or about its contents. After
// other errors, a later attempt may succeed.
func answered(err error) bool {
	return err == nil || errors.Is(err, errLayout) || errors.Is(err, unix.EFAULT)
}

// heap reads V8's objects. A tagged word is the address of an object plus 1, or a small
// integer in the upper half of the word.
type heap struct {
	layout
	memory runtimes.Memory
}

// isObject reports whether a word is a tagged pointer.
func isObject(w uint64) bool { return w&3 == 1 }

// smi returns the value of a small integer.
func smi(w uint64) (int, bool) { return int(int32(w >> 32)), w&0xffffffff == 0 }

// words are the contents of an object, or of its beginning.
type words []byte

// at returns the word at an offset, or 0 if it is outside.
func (w words) at(offset int) uint64 {
	if offset < 0 || offset > len(w)-word {
		return 0
	}
	return binary.LittleEndian.Uint64(w[offset:])
}

// uint32 returns the 4 bytes at an offset, or 0 if they are outside.
func (w words) uint32(offset int) uint {
	if offset < 0 || offset > len(w)-4 {
		return 0
	}
	return uint(binary.LittleEndian.Uint32(w[offset:]))
}

func (w words) int32(offset int) int { return int(int32(w.uint32(offset))) }

// read reads n bytes of an object.
func (h *heap) read(object uint64, n int) (words, error) {
	if !isObject(object) {
		return nil, errLayout
	}
	if n < 0 {
		return nil, errLayout
	}
	b := make(words, n)
	return b, h.memory.Read(b, object-1)
}

// still returns an error unless an object still begins with the words. What was read at a pointer in
// them is right if it is read before this check, since V8 updates pointers to objects that it moves.
func (h *heap) still(object uint64, w words) error {
	again, err := h.read(object, len(w))
	if err == nil && !bytes.Equal(again, w) {
		err = errMoved
	}
	return err
}

// instanceType returns the type of the object whose first word is given.
func (h *heap) instanceType(first uint64) (int, error) {
	if !isObject(first) {
		return 0, errLayout
	}
	var b [2]byte
	err := h.memory.Read(b[:], first-1+uint64(h.kernel.MapType))
	return int(binary.LittleEndian.Uint16(b[:])), err
}

// typeOf returns the type of an object.
func (h *heap) typeOf(object uint64) (int, error) {
	b, err := h.read(object, word)
	if err != nil {
		return 0, err
	}
	return h.instanceType(b.at(0))
}

// typed reads n bytes of an object, which must have one of the types.
func (h *heap) typed(object uint64, n int, types ...int) (words, error) {
	b, err := h.read(object, n)
	if err != nil {
		return nil, err
	}
	is, err := h.instanceType(b.at(mapAt))
	if err != nil {
		return nil, err
	}
	if slices.Contains(types, is) {
		return b, nil
	}
	return nil, fmt.Errorf("%w: type %d instead of %v", errLayout, is, types)
}

// array reads the elements of an array of one of the types, each of size bytes, at most limit
// bytes.
func (h *heap) array(object uint64, size, limit int, types ...int) (words, error) {
	b, err := h.typed(object, h.arrayLength+word, types...)
	if err != nil {
		return nil, err
	}
	n, ok := smi(b.at(h.arrayLength))
	if !ok || n < 0 || n > limit/size {
		return nil, fmt.Errorf("%w: array of %d elements", errLayout, n)
	}
	elements := make(words, n*size)
	if err := h.memory.Read(elements, object-1+uint64(h.arrayData)); err != nil {
		return nil, err
	}
	return elements, nil
}
