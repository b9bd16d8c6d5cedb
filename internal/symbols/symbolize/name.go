package symbolize

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

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

// valid returns a name in UTF-8: names are foreign bytes, and outputs such as
// pprof must be valid.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

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

// demangleAtOnce is how many names make one goroutine more worth its start.
const demangleAtOnce = 64

// nameFrames names those frames that have only the linker's name. Demangling
// costs more than all else, and frames share their functions: so each name is
// demangled once, on all CPUs.
func nameFrames(frames [][]Frame, opts Options) {
	known := map[string]*names{}
	var distinct []*names
	each := func(visit func(*Frame)) {
		for _, chain := range frames {
			for i := range chain {
				if f := &chain[i]; f.Name == "" && f.SystemName != "" {
					visit(f)
				}
			}
		}
	}
	each(func(f *Frame) {
		if known[f.SystemName] == nil {
			n := &names{system: f.SystemName}
			known[f.SystemName] = n
			distinct = append(distinct, n)
		}
	})
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 1+len(distinct)/demangleAtOnce) {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(distinct); i = next.Add(1) - 1 {
				*distinct[i] = newNames(distinct[i].system, opts)
			}
		})
	}
	workers.Wait()
	each(func(f *Frame) {
		n := known[f.SystemName]
		f.Name, f.SystemName = n.shown, n.system
	})
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
