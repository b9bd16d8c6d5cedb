package sampleprof

import (
	"bytes"
	"context"
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

// Read adds the counts of a profile in either format to p. name is used in errors, which leave
// a part of the counts in p.
func (p *Profile) Read(ctx context.Context, r io.Reader, name string) (Format, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxBytes {
		return "", &SyntaxError{name, "at its start", fmt.Sprintf("more than %d bytes", maxBytes)}
	}
	format, read := Text, readText
	if isBinary(data) {
		format, read = Binary, readBinary
	}
	err = read(&builder{ctx: ctx, profile: p}, data)
	if syntax := new(SyntaxError); errors.As(err, &syntax) {
		syntax.File = name
	}
	return format, err
}

// atPlace returns err as an error of the input, unless the context ended.
func atPlace(place string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &SyntaxError{At: place, Problem: err.Error()}
}

// builder adds to a profile, and bounds how much.
type builder struct {
	ctx     context.Context
	profile *Profile
	counts  int
}

// errCounts is the error for a profile with too many counts.
var errCounts = fmt.Errorf("more than %d counts", maxCounts)

// reserve makes room for n more counts.
func (b *builder) reserve(n int) error {
	const checked = 1 << 12 // counts
	if before := b.counts / checked; (b.counts+n)/checked > before && b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	if b.counts += n; b.counts > maxCounts {
		return errCounts
	}
	return nil
}
