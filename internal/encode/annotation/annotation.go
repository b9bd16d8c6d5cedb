// Package annotation tells kinds of frames apart in outputs that are plain
// text, by the suffixes that flamegraph.pl colours frames by.
package annotation

import "fulgur/internal/profile"

// Of returns what follows the name of a frame: "_[k]" for the kernel's, as in
// bcc's `profile -a`, inlined or not, "_[i]" for functions that were inlined
// in user space, as in stackcollapse-perf.pl, and nothing for others.
func Of(f profile.Frame) string {
	switch {
	case f.Kind == profile.KindKernel:
		return "_[k]"
	case f.Inlined:
		return "_[i]"
	}
	return ""
}
