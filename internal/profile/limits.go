package profile

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Limits on profiles that are read from files. A file is not trusted: one of some
// kilobytes can describe terabytes. Each limit is far beyond what profilers
// write, and low enough for a machine with a few gigabytes of free memory. What
// exceeds MaxDepth, MaxTables, MaxFrames or MaxName is cut, and [Losses] counts
// it; what exceeds the others is an error.
const (
	// MaxDepth is the number of frames in a stack. The kernel records 127 unless
	// a sysctl raises that, Go 128, the JVM 1024; only endless recursion is deeper.
	MaxDepth = 1 << 14
	// MaxTables is the memory, in bytes, that the tables of a profile take. It is
	// room for some 10 million distinct samples.
	MaxTables = 2 << 30
	// MaxFrames is the number of frames that all distinct samples have together.
	// Formats that share the beginnings of stacks need a few bytes for a stack of
	// MaxDepth frames, and what writes it takes time and space for each frame: at
	// this limit, seconds and gigabytes.
	MaxFrames = 1 << 28
	// MaxName is the length of a name in bytes. The longest names are those of C++
	// templates, which compilers cut or hash at some thousand characters.
	MaxName = 16 << 10
	// MaxValues is the number of value types. perf record can count all
	// tracepoints of the system calls at once, some 700.
	MaxValues = 1 << 10
	// MaxUnpacked is the length, in bytes, of what is read of one compressed input.
	// What compresses well could keep a CPU busy for days.
	MaxUnpacked = 64 << 30
	// MaxHeld is the length, in bytes, of an input that must be in memory as a
	// whole.
	MaxHeld = 512 << 20
	// MaxLine is the length of a line of text in bytes: MaxDepth frames with names
	// of a kilobyte.
	MaxLine = 16 << 20
)

// Errors of inputs beyond what can be counted.
var (
	errSum    = fmt.Errorf("its values add up to more than %d", int64(math.MaxInt64))
	errValues = fmt.Errorf("more than %d types of values, or too many for the number of samples", MaxValues)
)

// ErrUnpacked is the error of an input that is longer than MaxUnpacked.
var ErrUnpacked = errors.New("longer than 64 GiB unpacked")

// Truncated is the name of the marker in place of what was cut: the frames of a
// stack beyond MaxDepth, or the whole stack where the tables have no more room.
const Truncated = "[truncated]"

// Approximate memory for a row of a table with its entry in the index, in bytes.
const (
	sizeMapping  = 200
	sizeFunction = 200
	sizeFrame    = 160
	sizeStack    = 48
	sizeTask     = 120
	sizeSample   = 200
)

// budget is what the tables of a profile may still take.
type budget struct {
	bytes  int64 // of memory
	frames int64 // of distinct samples
}

// take reports whether there is room for n bytes, and takes it.
func (b *budget) take(n int) bool {
	if int64(n) > b.bytes {
		return false
	}
	b.bytes -= int64(n)
	return true
}

// cutName returns the beginning of a name that is longer than MaxName.
func cutName(s string) string {
	const mark = "…"
	end := MaxName - len(mark)
	for i := 0; i < utf8.UTFMax-1 && !utf8.RuneStart(s[end]); i++ {
		end--
	}
	return strings.Clone(s[:end]) + mark
}
