package symbolize

import (
	"math/bits"
	"strconv"
	"strings"
)

// legacyRust are the escapes of Rust's legacy linker names, but those of characters by their number, such
// as $u7b$ for "{".
var legacyRust = map[string]string{
	"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ",",
}

// demangleLegacyRust returns the name of a function of Rust with a legacy linker name, such as
// app::main::{{closure}} for _ZN3app4main28_$u7b$$u7b$closure$u7d$$u7d$17h20ec027d87d40478E, or false for
// other linker names. The hash at the end changes with each build, so it is left out. C++ has names of the
// same form, but hardly one that ends like a hash. See rustc's legacy.rs of symbol mangling.
func demangleLegacyRust(linkage string) (string, bool) {
	rest, ok := strings.CutPrefix(linkage, "_ZN")
	if !ok {
		return "", false
	}
	var parts []string
	for rest != "" && rest[0] != 'E' {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n == 0 || n > len(rest)-digits {
			return "", false
		}
		parts = append(parts, rest[digits:digits+n])
		rest = rest[digits+n:]
	}
	// LLVM may append a suffix: ".llvm.123", ".cold".
	if suffix, ok := strings.CutPrefix(rest, "E"); !ok || suffix != "" && suffix[0] != '.' {
		return "", false
	}
	last := len(parts) - 1
	if last < 1 || !isLegacyHash(parts[last]) {
		return "", false
	}
	var b strings.Builder
	for i, part := range parts[:last] {
		if i > 0 {
			b.WriteString("::")
		}
		if strings.HasPrefix(part, "_$") {
			part = part[1:] // no linker name begins with "$"
		}
		for part != "" {
			text, n := legacyEscape(part)
			b.WriteString(text)
			part = part[n:]
		}
	}
	return b.String(), true
}

// legacyEscape returns the text of the first n bytes of a part of a name: an escape, or plain text.
func legacyEscape(part string) (text string, n int) {
	if strings.HasPrefix(part, "..") {
		return "::", 2
	}
	if part[0] != '$' {
		return part[:1], 1
	}
	code, _, ok := strings.Cut(part[1:], "$")
	if !ok {
		return part, len(part)
	}
	n = len(code) + 2
	if text := legacyRust[code]; text != "" {
		return text, n
	}
	if digits, ok := strings.CutPrefix(code, "u"); ok {
		if c, err := strconv.ParseUint(digits, 16, 32); err == nil && c >= ' ' && c != 0x7f {
			return string(rune(c)), n
		}
	}
	return part, len(part)
}

// isLegacyHash reports whether a part of a name is the hash of a legacy one. Like other demanglers, it
// requires several different digits.
func isLegacyHash(part string) bool {
	const minDifferent = 5
	digits, ok := strings.CutPrefix(part, "h")
	if !ok || len(digits) != 16 {
		return false
	}
	var seen uint16
	for i := range len(digits) {
		c := digits[i]
		switch {
		case isDigit(c):
			seen |= 1 << (c - '0')
		case 'a' <= c && c <= 'f':
			seen |= 1 << (c - 'a' + 10)
		default:
			return false
		}
	}
	return bits.OnesCount16(seen) >= minDifferent
}
