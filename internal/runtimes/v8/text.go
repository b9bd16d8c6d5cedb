package v8

import (
	"fmt"
	"strings"

	"fulgur/internal/runtimes"
)

const (
	maxName   = 256     // characters of a name
	maxFile   = 4096    // characters of a file's name
	maxSource = 8 << 20 // characters of a script
	maxPieces = 256     // parts of a string
)

// piece is a part of a string.
type piece struct {
	object     uint64
	from, size int // characters
}

// text returns the first limit characters of a string. A string may be a concatenation of
// other strings (cons), a part of one (sliced), or a reference to one (thin); see
// src/objects/string.tq.
func (h *heap) text(object uint64, limit int) (string, error) {
	var out strings.Builder
	type part struct {
		object uint64
		head   words
	}
	var parts []part
	left := limit
	todo := []piece{{object, 0, -1}}
	for n := 0; len(todo) > 0 && left > 0; n++ {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n >= maxPieces {
			return "", fmt.Errorf("%w: string of more than %d parts", errLayout, maxPieces)
		}
		b, err := h.read(p.object, stringSize)
		if err != nil {
			return "", err
		}
		parts = append(parts, part{p.object, b})
		is, err := h.instanceType(b.at(mapAt))
		if err != nil {
			return "", err
		}
		if is >= h.nonString {
			return "", fmt.Errorf("%w: type %d instead of a string", errLayout, is)
		}
		length := b.int32(h.stringLength)
		if p.size < 0 {
			p.size = length
		}
		if length < 0 || p.from < 0 || p.size < 0 || p.from > length || p.size > length-p.from {
			return "", fmt.Errorf("%w: %d characters", errLayout, length)
		}
		switch is & h.representation {
		case h.seq:
			err = h.characters(&out, p.object-1+uint64(h.stringChars), is, p, &left)
		case h.external:
			// The address of the text comes after the resource.
			if is&uncached != 0 {
				return "", fmt.Errorf("%w: text of an uncached external string", errLayout)
			}
			err = h.characters(&out, b.at(h.externalResource+word), is, p, &left)
		case h.thin:
			todo = append(todo, piece{b.at(h.thinActual), p.from, p.size})
		case h.sliced:
			offset, ok := smi(b.at(h.slicedOffset))
			if !ok || offset < 0 {
				return "", errLayout
			}
			todo = append(todo, piece{b.at(h.slicedParent), offset + p.from, p.size})
		case h.cons:
			if p.from != 0 || p.size != length {
				return "", errLayout // V8 slices only flat strings
			}
			todo = append(todo, piece{b.at(h.consSecond), 0, -1}, piece{b.at(h.consFirst), 0, -1})
		default:
			return "", fmt.Errorf("%w: string of type %d", errLayout, is)
		}
		if err != nil {
			return "", err
		}
	}
	for _, p := range parts {
		if err := h.still(p.object, p.head); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

// uncached is a bit in the type of an external string without the address of its text; see
// kUncachedExternalStringTag in src/objects/instance-type.h.
const uncached = 1 << 4

// characters appends the characters of a piece whose text begins at an address.
func (h *heap) characters(out *strings.Builder, address uint64, is int, p piece, left *int) error {
	width := 2
	if is&h.encoding == h.oneByte {
		width = 1
	}
	n := min(p.size, *left)
	b := make([]byte, n*width)
	if err := h.memory.Read(b, address+uint64(p.from*width)); err != nil {
		return err
	}
	*left -= n
	out.WriteString(runtimes.Text(b, uint32(n), uint32(width)))
	return nil
}
