package sampleprof

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/klauspost/compress/zlib"
)

// maxSections bounds the sections of a profile. LLVM writes seven or eight.
const maxSections = 64

// errShort is the error for data that ends too early.
var errShort = errors.New("cut short")

// readBinary reads the extensible binary format.
func readBinary(b *builder, data []byte) error {
	sections, err := readSections(data)
	if err != nil {
		return atPlace("header", err)
	}
	r := binaryReader{builder: b}
	// Names come before the sections that refer to them.
	slices.SortStableFunc(sections, func(a, b section) int { return cmp.Compare(rank(a.kind), rank(b.kind)) })
	for _, s := range sections {
		if err := r.section(s); err != nil {
			return atPlace(fmt.Sprintf("section of kind %d", s.kind), err)
		}
	}
	return nil
}

// rank is the order in which to read sections.
func rank(kind uint64) int {
	if kind == sectionNames {
		return 0
	}
	return 1
}

// readSections reads the header and uncompresses sections.
func readSections(data []byte) ([]section, error) {
	c := cursor{rest: data}
	if c.number() != magic {
		return nil, errors.New("not the extensible binary format (llvm-profdata merge --sample --extbinary converts)")
	}
	if v := c.number(); v != version && c.err == nil {
		return nil, fmt.Errorf("version %d of the format, but only %d is known", v, version)
	}
	n := c.word()
	if n > maxSections {
		return nil, fmt.Errorf("too many sections: %d", n)
	}
	var sections []section
	total := uint64(0)
	for range n {
		s := section{kind: c.word(), flags: c.word()}
		offset, size := c.word(), c.word()
		switch {
		case c.err != nil:
			return nil, c.err
		case offset > uint64(len(data)) || size > uint64(len(data))-offset:
			return nil, fmt.Errorf("section of kind %d beyond the end of the file", s.kind)
		case size == 0:
			continue
		}
		s.data = data[offset : offset+size]
		if s.flags&flagCompressed != 0 {
			var err error
			if s.data, err = uncompress(s.data, maxBytes-total); err != nil {
				return nil, err
			}
		}
		if total += uint64(len(s.data)); total > maxBytes {
			return nil, fmt.Errorf("more than %d bytes", maxBytes)
		}
		sections = append(sections, s)
	}
	return sections, c.err
}

// uncompress returns the contents of a compressed section: both sizes and zlib data.
func uncompress(data []byte, limit uint64) ([]byte, error) {
	c := cursor{rest: data}
	size, compressed := c.number(), c.number()
	if c.err != nil || compressed > uint64(len(c.rest)) {
		return nil, errShort
	}
	if size > limit {
		return nil, fmt.Errorf("more than %d bytes", maxBytes)
	}
	z, err := zlib.NewReader(bytes.NewReader(c.rest[:compressed]))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer // grows with the data, whatever size says
	if n, err := io.Copy(&b, io.LimitReader(z, int64(size)+1)); err != nil {
		return nil, err
	} else if uint64(n) != size {
		return nil, fmt.Errorf("compressed section of %d bytes, not %d", n, size)
	}
	return b.Bytes(), nil
}

// cursor decodes numbers. It keeps the first error.
type cursor struct {
	rest []byte
	err  error
}

func (c *cursor) fail(err error) uint64 {
	if c.err == nil {
		c.err = err
	}
	c.rest = nil
	return 0
}

// number reads a ULEB128 number.
func (c *cursor) number() uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		return c.fail(errShort)
	}
	c.rest = c.rest[n:]
	return v
}

// word reads a number of 8 bytes.
func (c *cursor) word() uint64 {
	if len(c.rest) < 8 {
		return c.fail(errShort)
	}
	v := binary.LittleEndian.Uint64(c.rest)
	c.rest = c.rest[8:]
	return v
}

// count reads the number of elements that follow, each of at least one byte.
func (c *cursor) count() int {
	n := c.number()
	if n > uint64(len(c.rest)) {
		return int(c.fail(errShort))
	}
	return int(n)
}

// binaryReader reads sections.
type binaryReader struct {
	*builder
	names []string
}

func (r *binaryReader) section(s section) error {
	switch s.kind {
	case sectionSummary:
		if s.flags&(flagContexts|flagPreinlined) != 0 {
			return errOtherKind
		}
		r.profile.Flow = r.profile.Flow || s.flags&flagFlow != 0
	case sectionMetadata:
		return errOtherKind // empty in other profiles
	case sectionContexts:
		c := cursor{rest: s.data}
		if c.number() > 0 {
			return errOtherKind
		}
	case sectionNames:
		if s.flags&(flagHashes|flagFixedHashes) != 0 {
			return errors.New("functions have hashes instead of names, which only llvm-profdata can handle")
		}
		return r.readNames(s.data)
	case sectionSymbols:
		for name := range strings.SplitSeq(strings.TrimRight(string(s.data), "\x00"), "\x00") {
			if err := r.reserve(1); err != nil {
				return err
			}
			r.profile.addSymbol(name)
		}
	case sectionProfiles:
		return r.readProfiles(s.data)
	case sectionFunctionOffsets: // the profiles are read in order
	default:
		return errors.New("unknown")
	}
	return nil
}

func (r *binaryReader) readNames(data []byte) error {
	c := cursor{rest: data}
	for range c.count() {
		name, rest, found := bytes.Cut(c.rest, []byte{0})
		if !found {
			return errShort
		}
		if !ValidName(string(name)) {
			return fmt.Errorf("%.40q is not the name of a function", name)
		}
		if err := r.reserve(1); err != nil {
			return err
		}
		r.names = append(r.names, string(name))
		c.rest = rest
	}
	return c.err
}

// unread is a function with inlined calls that have not been read yet.
type unread struct {
	f     *Function
	calls int
}

// readProfiles reads functions, each with its tree of inlined calls.
func (r *binaryReader) readProfiles(data []byte) error {
	c := &cursor{rest: data}
	var stack []unread
	for len(c.rest) > 0 {
		head := c.number()
		name := r.name(c)
		if c.err != nil {
			return c.err
		}
		f := r.profile.Function(name)
		f.Head = Sum(f.Head, head)
		stack = append(stack[:0], unread{f: f})
		if err := r.function(c, &stack[0]); err != nil {
			return err
		}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.calls == 0 {
				stack = stack[:len(stack)-1]
				continue
			}
			top.calls--
			call := Call{Location: location(c), Callee: r.name(c)}
			if c.err != nil {
				return c.err
			}
			if len(stack) == maxDepth {
				return fmt.Errorf("more than %d nested calls", maxDepth)
			}
			stack = append(stack, unread{f: top.f.Call(call)})
			if err := r.function(c, &stack[len(stack)-1]); err != nil {
				return err
			}
		}
	}
	return c.err
}

// function reads a function up to its inlined calls.
func (r *binaryReader) function(c *cursor, to *unread) error {
	if err := r.reserve(1); err != nil {
		return err
	}
	to.f.Total = Sum(to.f.Total, c.number())
	for range c.count() {
		record := to.f.At(location(c))
		record.Samples = Sum(record.Samples, c.number())
		targets := c.count()
		if err := r.reserve(1 + targets); err != nil {
			return err
		}
		for range targets {
			name := r.name(c)
			n := c.number()
			if c.err != nil {
				return c.err
			}
			record.AddTarget(name, n)
		}
		if c.err != nil {
			return c.err
		}
	}
	to.calls = c.count()
	return c.err
}

// name reads the index of a name.
func (r *binaryReader) name(c *cursor) string {
	i := c.number()
	if i >= uint64(len(r.names)) {
		c.fail(errors.New("function without a name"))
		return ""
	}
	return r.names[i]
}

func location(c *cursor) Location {
	line, discriminator := c.number(), c.number()
	if line > math.MaxUint16 || discriminator > math.MaxUint32 {
		c.fail(errors.New("location out of range"))
	}
	return Location{uint32(line), uint32(discriminator)}
}
