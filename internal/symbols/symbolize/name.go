package symbolize

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ianlancetaylor/demangle"

	"fulgur/internal/message/shortname"
)

// maxName bounds names, in bytes. Longer names, which occur only with excessive templates
// and in crafted files, are truncated.
const maxName = 8 << 10

// demangleOptions omits parameters and clone suffixes, as perf does: for readers of a
// profile, a function and its cold part are one function. The length is bounded because
// mangling can compress a name exponentially. The limit is the power of two nearest to
// maxName.
var demangleOptions = []demangle.Option{demangle.NoParams, demangle.MaxLength(13)}

// NewFrame returns the frame of the function with the given linker name, offset bytes
// after its start. The name may contain arbitrary bytes.
func NewFrame(name []byte, offset uint64, opts Options) Frame {
	n := newNames(string(name), opts)
	return Frame{Name: n.shown, SystemName: n.system, Offset: offset}
}

// valid converts a name to valid UTF-8, which outputs such as pprof require.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// names holds the names of a function.
type names struct{ shown, system string }

// newNames returns the names of the function with the given linker name. The time to demangle a
// name can grow with the square of its length.
func newNames(linkage string, opts Options) names {
	system := valid(linkage[:min(len(linkage), maxName)])
	n := names{shown: system, system: system}
	if opts.NoDemangle {
		return n
	}
	n.shown = valid(demangled(system)) // a length in the linker name may end within a character
	if opts.ShortNames {
		n.shown = shortname.Of(n.shown)
	}
	return n
}

// demangled returns the name of the function with the given linker name.
func demangled(linkage string) string {
	if name, ok := demangleOCaml(linkage); ok {
		return name
	}
	if name, ok := demangleD(linkage, false); ok {
		return name[:min(len(name), maxName)]
	}
	if name, ok := demangleLegacyRust(linkage); ok {
		return name
	}
	return demangle.Filter(linkage, demangleOptions...)
}

// demangleAtOnce is the number of names that make another goroutine worthwhile.
const demangleAtOnce = 64

// nameFrames demangles the names of frames that have only a linker name. Demangling is
// the most expensive step, and frames share functions, so each name is demangled once, on
// all CPUs. When ctx is done, the rest keep their linker names.
func nameFrames(ctx context.Context, frames [][]Frame, opts Options) {
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
			opts := opts
			for i := next.Add(1) - 1; int(i) < len(distinct); i = next.Add(1) - 1 {
				opts.NoDemangle = opts.NoDemangle || ctx.Err() != nil
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

// preferName reports whether alias a is a better name than b: it has fewer leading
// underscores, or is longer, or comes first in alphabetical order, which makes the choice
// independent of the order in tables. perf uses the same rule, so profiles can be
// compared.
func preferName(a, b []byte) bool {
	if ua, ub := underscores(a), underscores(b); ua != ub {
		return ua < ub
	}
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return string(a) < string(b)
}

// underscores returns the number of leading underscores in name.
func underscores(name []byte) int {
	n := 0
	for n < len(name) && name[n] == '_' {
		n++
	}
	return n
}
