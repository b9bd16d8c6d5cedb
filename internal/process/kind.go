package process

import "strings"

// Kind is the kind of memory that an address belongs to.
type Kind uint8

// The kinds of memory.
const (
	// KindUnknown: no mapping is known there.
	KindUnknown Kind = iota
	// KindFile: code in a mapped file.
	KindFile
	// KindVDSO: the vDSO, which the kernel maps into every process.
	KindVDSO
	// KindVsyscall: the page of legacy system calls on amd64.
	KindVsyscall
	// KindAnon: executable memory without a file, usually JIT code.
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

// KindOf returns the kind of an executable mapping, given its name in the kernel or in perf, and its inode, 0 if it
// has none.
func KindOf(name string, ino uint64) Kind {
	switch {
	case name == "[vdso]":
		return KindVDSO
	case name == "[vsyscall]":
		return KindVsyscall
	case ino == 0,
		strings.HasPrefix(name, "["),      // heap, stack, named anonymous memory
		strings.HasPrefix(name, "//anon"), // perf's name for anonymous memory
		strings.HasPrefix(name, "anon_inode:"):
		return KindAnon
	}
	// Shared memory is backed by files that never had a name.
	if name, deleted := strings.CutSuffix(name, deletedSuffix); deleted {
		if name == "/dev/zero" || strings.HasPrefix(name, "/SYSV") || name == "/anon_hugepage" {
			return KindAnon
		}
	}
	return KindFile
}

// isMemfd reports whether a mapping is of a memfd_create(2) file, which may hold a JIT's
// code or a loader's library.
func isMemfd(name string) bool {
	return strings.HasPrefix(name, "/memfd:") && isDeleted(name)
}

// isDeleted reports whether a mapping is of a file without a name. Programs that share memory or use
// huge pages delete the file once it is mapped.
func isDeleted(name string) bool { return strings.HasSuffix(name, deletedSuffix) }
