package sampleprof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

const (
	// maxBytes bounds the uncompressed size of a profile, in bytes.
	maxBytes = 1 << 30
	// maxCounts bounds the counts in a profile: locations, call targets and functions.
	// Chromium's has about two million.
	maxCounts = 1 << 23
	// maxDepth bounds the nesting of inlined calls.
	maxDepth = 512
)

// SyntaxError reports a profile that clang would reject or misread, or one with features
// that this package does not know.
type SyntaxError struct {
	// File is the name of the profile, and At the place in it: a line or an offset.
	File, At string
	// Problem describes the error.
	Problem string
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("%s: %s: %s", e.File, e.At, e.Problem) }

// ValidName reports whether LLVM's text format can represent the name of a function.
func ValidName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) &&
		!strings.ContainsRune("#[!0123456789", rune(name[0]))
}

// firstBytes is the start of every binary profile.
var firstBytes = binary.AppendUvarint(nil, magic)

// firstLine matches the first line of a profile in the text format.
var firstLine = regexp.MustCompile(`\A(?:[ \t]*(?:#.*)?\r?\n)*\S+:[0-9]+:[0-9]+[ \t]*\r?(?:\n|\z)`)

// IsProfile reports whether a file that begins with head, at least a line, is a sample
// profile.
func IsProfile(head []byte) bool {
	return isBinary(head) || firstLine.Match(head)
}

// isBinary reports whether head begins a binary profile. The first two bytes encode the
// lowest byte of the magic number, which is the number of the format.
func isBinary(head []byte) bool {
	return len(head) >= len(firstBytes) && bytes.Equal(head[2:len(firstBytes)], firstBytes[2:])
}

// Read reads a profile in either format. name is used in errors.
func Read(r io.Reader, name string) (*Profile, Format, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxBytes {
		return nil, "", &SyntaxError{name, "at its start", fmt.Sprintf("more than %d bytes", maxBytes)}
	}
	var p *Profile
	format := Text
	if isBinary(data) {
		format = Binary
		p, err = readBinary(data)
	} else {
		p, err = readText(data)
	}
	if syntax := new(SyntaxError); errors.As(err, &syntax) {
		syntax.File = name
	}
	return p, format, err
}

// builder builds a profile and bounds its size.
type builder struct {
	profile Profile
	counts  int
}

// errCounts is the error for a profile with too many counts.
var errCounts = fmt.Errorf("more than %d counts", maxCounts)

// reserve makes room for n more counts.
func (b *builder) reserve(n int) error {
	if b.counts += n; b.counts > maxCounts {
		return errCounts
	}
	return nil
}
