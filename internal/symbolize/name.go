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
	n := newNames(string(name), opts)
	return Frame{Name: n.shown, SystemName: n.system, Offset: offset}
}

// names are what a function is called.
type names struct{ shown, system string }

// newNames returns the names of the function that the linker calls so.
func newNames(linkage string, opts Options) names {
	system := valid(linkage)
	n := names{shown: system, system: system}
	if !opts.NoDemangle {
		n.shown = demangle.Filter(system, demangleOptions...)
		if opts.ShortNames {
			n.shown = shorten(n.shown)
		}
	}
	return n
}

// valid returns a name in UTF-8: names are foreign bytes, and outputs such as
// pprof must be valid.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// namer keeps the names of the functions of a batch: many addresses share a
// function, and the same few are inlined everywhere. Demangling costs far more
// than the look-up. It serves one goroutine.
type namer struct {
	opts  Options
	known map[string]names // by the linker's name
}

func newNamer(opts Options) *namer { return &namer{opts: opts, known: map[string]names{}} }

// of returns the names of the function that the linker calls so.
func (n *namer) of(linkage string) names {
	known, ok := n.known[linkage]
	if !ok {
		known = newNames(linkage, n.opts)
		n.known[linkage] = known
	}
	return known
}

// frame is [NewFrame] with what is known.
func (n *namer) frame(name []byte, offset uint64) Frame {
	known, ok := n.known[string(name)] // without a copy
	if !ok {
		known = n.of(string(name))
	}
	return Frame{Name: known.shown, SystemName: known.system, Offset: offset}
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
