package profile

import (
	"regexp"
	"strings"
)

var (
	// clones are what compilers and linkers append to the name of a part or a copy of a function.
	clones = regexp.MustCompile(`(?:\.(?:cold(?:\.\d+)?|(?:part|isra|constprop|llvm|lto_priv|localalias|clone|__uniq|specialized)\.\d+))+$`)
	// demangledClones are the same in demangled names of C++: by GNU's and LLVM's demangler.
	demangledClones = regexp.MustCompile(`(?: \[clone [^\]]*\]| \(\.[^)]*\))+$`)
	// rustHash ends a demangled name of Rust's legacy mangling, and crateHash follows the name of a
	// crate in that of v0.
	rustHash  = regexp.MustCompile(`::h[0-9a-f]{16}$`)
	crateHash = regexp.MustCompile(`(\w)\[[0-9a-f]{8,16}\]`)
	// linkedRustHash ends a linker name of Rust's legacy mangling.
	linkedRustHash = regexp.MustCompile(`17h[0-9a-f]{16}E$`)
	// position is the position of a function of JavaScript in its file, and tier the tier of its code.
	position = regexp.MustCompile(`( .*?)(?::\d+){1,2}(\)?)$`)
	tier     = regexp.MustCompile(`^JS:[~^+*]`)
)

// lasting returns the part of a function's name that another build or run also has: without the
// marks of parts and copies that compilers make, such as ".cold" and ".isra.0", without hashes of Rust,
// and without the line and the tier of JavaScript. file is the function's source file, if known: Go
// functions keep their names, in which ".cold" is a name of its own. So do anonymous functions of
// JavaScript, which have nothing but their lines.
func lasting(name, file string) string {
	if strings.HasSuffix(file, ".go") {
		return name
	}
	short := clones.ReplaceAllString(demangledClones.ReplaceAllString(name, ""), "")
	short = rustHash.ReplaceAllString(short, "")
	if strings.Contains(short, "::") {
		short = crateHash.ReplaceAllString(short, "$1")
	}
	short = tier.ReplaceAllString(short, "JS:")
	if !strings.Contains(short, "(anonymous)") {
		short = position.ReplaceAllString(short, "$1$2")
	}
	if short == "" {
		return name
	}
	return short
}

// lastingLinked is lasting for a linker name, of a function with a lasting name. Rust's v0 mangling has
// hashes in the middle, so the name decides.
func lastingLinked(linked, name string) string {
	if strings.HasPrefix(linked, "_R") {
		return name
	}
	return linkedRustHash.ReplaceAllString(clones.ReplaceAllString(linked, ""), "E")
}

var soVersion = regexp.MustCompile(`\.so[.\d]*(?: \(deleted\))?$|-\d[.\d]*\.so$`)

// unversioned returns the name of a file without the version of a library, and without the note of a
// file that was deleted.
func unversioned(file string) string {
	if soVersion.MatchString(file) {
		return soVersion.ReplaceAllString(file, ".so")
	}
	return strings.TrimSuffix(file, " (deleted)")
}
