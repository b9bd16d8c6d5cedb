// Package ruby finds the layout of CRuby 3.1 to 3.4, which the kernel side (bpf/ruby.h)
// needs, and the lines of instruction sequences.
//
// A file has CRuby if it exports ruby_version. Ruby does not describe its structures, so this
// package has a table of offsets by version, from vm_core.h and iseq.h. In stripped files,
// the thread-local variable ruby_current_ec and the function rb_vm_exec have no symbols. The
// package finds them in the code of functions that are exported for extensions.
package ruby

import (
	"bytes"
	"debug/elf"
	"fmt"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
)

// Runtime is CRuby.
type Runtime struct{}

// Name implements [runtimes.Runtime].
func (Runtime) Name() string { return "ruby" }

// ReadsMemory implements [runtimes.Runtime].
func (Runtime) ReadsMemory() bool { return false }

// Internal implements [runtimes.Runtime]. It reports false even for the runtime's own
// functions, such as Kernel#loop in <internal:kernel>, because backtraces of Ruby 3.1 to 3.3
// show them too.
func (Runtime) Internal(*runtimes.Code) bool { return false }

// layout has the offsets of fields.
type layout = bpf.UnwindRubyProcess

// layouts has the layouts by minor version of Ruby 3. The values are offsetof() in their
// headers for amd64, and do not change within a minor version.
var layouts = map[int]layout{
	1: {FrameSize: 64, BodyInfo: 120, StringText: 16, LineShift: 1},
	2: {FrameSize: 64, BodyInfo: 112, StringText: 24},
	3: {FrameSize: 56, BodyInfo: 112, StringText: 24},
	4: {FrameSize: 56, BodyInfo: 112, StringText: 24},
}

// Offsets in rb_vm_tag of the address at which a jump continues, and of the next tag.
// rb_vm_tag contains the buffer of __builtin_setjmp of GCC (5 words) or of setjmp of a C
// library for amd64 (200 bytes).
const (
	tagBuffer   = 16
	builtinPC   = tagBuffer + 8
	builtinSize = 5 * 8
	setjmpPC    = tagBuffer + 7*8
	setjmpSize  = 200
)

// Detect implements [runtimes.Runtime].
func (Runtime) Detect(f *elffile.File) (*runtimes.Build, error) {
	s, ok, err := f.DynamicSymbol("ruby_version")
	if err != nil || !ok {
		return nil, err
	}
	text, err := runtimes.Contents(f, s.Value, min(s.Size, 16))
	if err != nil {
		return nil, err
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	var major, minor, teeny int
	if _, err := fmt.Sscanf(string(text), "%d.%d.%d", &major, &minor, &teeny); err != nil {
		return nil, nil //nolint:nilerr // another program's symbol, not a version of Ruby
	}
	b := &runtimes.Build{Version: fmt.Sprintf("%d.%d.%d", major, minor, teeny)}
	l, ok := layouts[minor]
	switch {
	case major < 3 || major == 3 && minor < 1:
		b.Unknown = "ruby before 3.1: its functions are not shown"
		return b, nil
	case major != 3 || !ok:
		b.Unknown = fmt.Sprintf("ruby %d.%d: not supported yet, its functions are not shown", major, minor)
		return b, nil
	case f.Machine() != elf.EM_X86_64:
		b.Unknown = "ruby on this machine: not supported yet, its functions are not shown"
		return b, nil
	}
	l.Minor = uint8(minor)
	var start, end uint64
	hasContext, err := findContext(f, &l)
	if err == nil && hasContext {
		start, end, err = findExec(f)
	}
	if err != nil {
		return nil, err
	}
	jumps, err := importsJumps(f)
	if err != nil {
		return nil, err
	}
	if start == 0 {
		b.Unknown = fmt.Sprintf("ruby %s: its layout is not known, its functions are not shown", b.Version)
		return b, nil
	}
	l.TagPc, l.TagPrevious = builtinPC, tagBuffer+builtinSize
	if jumps {
		l.TagPc, l.TagPrevious = setjmpPC, tagBuffer+setjmpSize
	}
	l.Interpreter = bpf.RuntimeRange{Start: start, End: end}
	b.Entry = bpf.RuntimeProcess{Kinds: 1 << bpf.RuntimeRuby, Ruby: l}
	b.Place = func(e *bpf.RuntimeProcess, bias uint64, glibc bool) {
		runtimes.PlaceRange(&e.Ruby.Interpreter, bias)
		runtimes.PlaceLocal(&e.Ruby.Context, bias, glibc)
		if glibc && jumps {
			e.Ruby.Guarded = 1
		}
	}
	return b, nil
}
