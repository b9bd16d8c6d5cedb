package terminal

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Key is a pressed key: a printable character, or one of the constants below.
type Key rune

// Keys that are not characters. Their values are not valid characters.
const (
	Up Key = unicode.MaxRune + 1 + iota
	Down
	Left
	Right
	PageUp
	PageDown
	Home
	End
	Enter
	Escape
	Backspace
	Clear // Ctrl-U
)

// sequences lists what terminals send for keys: xterm's control sequences, and other
// terminals' variants of Home and End.
var sequences = []struct {
	text string
	key  Key
}{
	{"\x1b[A", Up}, {"\x1bOA", Up},
	{"\x1b[B", Down}, {"\x1bOB", Down},
	{"\x1b[D", Left}, {"\x1bOD", Left},
	{"\x1b[C", Right}, {"\x1bOC", Right},
	{"\x1b[5~", PageUp}, {"\x1b[6~", PageDown},
	{"\x1b[H", Home}, {"\x1bOH", Home}, {"\x1b[1~", Home}, {"\x1b[7~", Home},
	{"\x1b[F", End}, {"\x1bOF", End}, {"\x1b[4~", End}, {"\x1b[8~", End},
	{"\r", Enter}, {"\n", Enter},
	{"\x7f", Backspace}, {"\b", Backspace},
	{"\x15", Clear},
}

// ParseKeys returns the keys in sent, which the terminal sent at once. It skips
// unknown sequences.
func ParseKeys(sent []byte) []Key {
	var keys []Key
	for len(sent) > 0 {
		key, size := parseKey(sent)
		if key != 0 {
			keys = append(keys, key)
		}
		sent = sent[size:]
	}
	return keys
}

// parseKey returns the first key in sent, 0 if unknown, and its length in bytes.
func parseKey(sent []byte) (key Key, size int) {
	for _, s := range sequences {
		if bytes.HasPrefix(sent, []byte(s.text)) {
			return s.key, len(s.text)
		}
	}
	if sent[0] == '\x1b' {
		switch {
		case len(sent) > 2 && sent[1] == '[':
			return 0, sequenceLength(sent)
		case len(sent) > 2 && sent[1] == 'O':
			return 0, 3
		}
		return Escape, 1
	}
	r, size := utf8.DecodeRune(sent)
	if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
		return 0, size
	}
	return Key(r), size
}

// sequenceLength returns the length of a control sequence, which ends with a byte
// from "@" to "~".
func sequenceLength(sent []byte) int {
	for i := 2; i < len(sent); i++ {
		if sent[i] >= '@' && sent[i] <= '~' {
			return i + 1
		}
	}
	return len(sent)
}
