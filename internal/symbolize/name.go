package symbolize

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxName bounds the names that are read, in bytes. Longer ones, which only
// templates gone wild or hostile files have, are cut.
const maxName = 8 << 10

// demangleOptions leave out parameters and clone suffixes, as perf does: a
// function and its cold part are one function to the reader of a profile. The
// length is bounded because mangling can compress a name exponentially; it is
// the power of two nearest to maxName.
var demangleOptions = []demangle.Option{demangle.NoParams, demangle.MaxLength(13)}

// NewFrame returns the frame of the function with the given linker name,
// offset bytes after its start. The name may be any bytes.
func NewFrame(name []byte, offset uint64, opts Options) Frame {
	// Names are foreign bytes; outputs such as pprof must be valid UTF-8.
	system := strings.ToValidUTF8(string(name), "\uFFFD")
	shown := system
	if !opts.NoDemangle {
		shown = demangle.Filter(system, demangleOptions...)
	}
	return Frame{Name: shown, SystemName: system, Offset: offset}
}

// preferName reports whether of two aliases a is the better name: the one
// with fewer leading underscores, then the longer one, then, to make the
// choice independent of the tables' order, the first in the alphabet. The
// rule is that of perf, so that profiles can be compared.
func preferName(a, b []byte) bool {
	if ua, ub := underscores(a), underscores(b); ua != ub {
		return ua < ub
	}
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return string(a) < string(b)
}

// underscores returns the number of underscores that name begins with.
func underscores(name []byte) int {
	n := 0
	for n < len(name) && name[n] == '_' {
		n++
	}
	return n
}
