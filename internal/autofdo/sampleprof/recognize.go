package sampleprof

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"strings"
)

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
