package process

import "strings"

// Kind tells what an address belongs to.
type Kind uint8

// The kinds of places.
const (
	// KindUnknown: nothing is known to have been mapped there.
	KindUnknown Kind = iota
	// KindFile: code of a mapped file.
	KindFile
	// KindVDSO: the kernel's code that is mapped into every process.
	KindVDSO
	// KindVsyscall: the page of legacy system calls of amd64.
	KindVsyscall
	// KindAnon: executable memory without a file, most often a JIT's.
	KindAnon
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case KindFile:
		return "file"
	case KindVDSO:
		return "vdso"
	case KindVsyscall:
		return "vsyscall"
	case KindAnon:
		return "anon"
	}
	return "unknown"
}

const deletedSuffix = " (deleted)"

// classify returns what a mapping's name and inode say about its kind.
func classify(name string, ino uint64) Kind {
	switch {
	case name == "[vdso]":
		return KindVDSO
	case name == "[vsyscall]":
		return KindVsyscall
	case ino == 0,
		strings.HasPrefix(name, "["),      // heap, stack, named anonymous memory
		strings.HasPrefix(name, "//anon"), // perf's name of anonymous memory
		strings.HasPrefix(name, "anon_inode:"):
		return KindAnon
	}
	// Shared memory is kept in files that never had a name.
	if name, deleted := strings.CutSuffix(name, deletedSuffix); deleted {
		if name == "/dev/zero" || strings.HasPrefix(name, "/SYSV") || name == "/anon_hugepage" {
			return KindAnon
		}
	}
	return KindFile
}

// isMemfd reports whether a mapping's name is that of a memfd_create file,
// in which a JIT may keep its code, or a loader a library.
func isMemfd(name string) bool {
	return strings.HasPrefix(name, "/memfd:") && strings.HasSuffix(name, deletedSuffix)
}
