package symbolize

import (
	"strconv"
	"strings"
)

// demangleOCaml returns the name of a function of OCaml, such as Stdlib.List.fold_left for
// camlStdlib__List__fold_left_521, or false for other linker names. The name has the modules of files,
// but not those within a file, which the linker name lacks, too. See make_symbol in compilenv.ml and
// emit_symbol in emitaux.ml of OCaml.
//
// The number at the end changes with each change of the source, so it is left out, except in functions
// that have no other name.
func demangleOCaml(linkage string) (string, bool) {
	path, ok := strings.CutPrefix(linkage, "caml")
	if !ok || !isModule(path) {
		return "", false
	}
	// OCaml up to 5.0 separates the function from the file by "__", which is also between modules and
	// may be in the function's name. Later versions have "." there.
	unit, name, ok := strings.Cut(path, ".")
	modules := strings.Split(unit, "__")
	if !ok {
		n := 1
		for n < len(modules) && isModule(modules[n]) {
			n++
		}
		modules, name = modules[:n], strings.Join(modules[n:], "__")
	}
	if i := strings.LastIndexByte(name, '_'); i > 0 && isNumber(name[i+1:]) && name[:i] != "fun" {
		name = name[:i]
	}
	if name, ok = unescapeOCaml(name); !ok || name == "" {
		return "", false
	}
	if first := name[0]; first < 0x80 && first != '_' && !isLetter(first) {
		name = "(" + name + ")" // an operator
	}
	return strings.Join(append(modules, name), "."), true
}

// isModule reports whether s begins like the name of a module.
func isModule(s string) bool { return s != "" && 'A' <= s[0] && s[0] <= 'Z' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// isNumber reports whether s has only digits.
func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// unescapeOCaml replaces the escapes of characters that assemblers do not accept in names, such as $2b
// for "+". It returns false if there are others.
func unescapeOCaml(name string) (string, bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(name, "$")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		if len(after) < 2 {
			return "", false
		}
		c, err := strconv.ParseUint(after[:2], 16, 8)
		if err != nil || c <= ' ' || c == 0x7f {
			return "", false
		}
		b.WriteByte(byte(c))
		name = after[2:]
	}
}
