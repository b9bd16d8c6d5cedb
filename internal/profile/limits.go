package profile

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Limits of profiles read from files. Files are untrusted: a few kilobytes can describe
// terabytes. Each limit is far above what profilers write, and low enough for a machine
// with a few gigabytes of free memory. Data that exceeds MaxDepth, MaxTables, MaxFrames or
// MaxName is truncated and counted in [Losses]. Exceeding another limit is an error.
const (
	// MaxDepth is the maximum number of frames in a stack. The kernel records 127 unless
	// a sysctl raises that, Go 128, the JVM 1024. Only endless recursion is deeper.
	MaxDepth = 1 << 14
	// MaxTables is the maximum memory size of a profile's tables, in bytes. It allows
	// about 10 million distinct samples.
	MaxTables = 2 << 30
	// MaxFrames is the maximum total number of frames in all distinct samples. Formats
	// that share the beginnings of stacks need only a few bytes for a stack of MaxDepth
	// frames, whereas writing takes time and space for each frame: at this limit, seconds
	// and gigabytes.
	MaxFrames = 1 << 28
	// MaxName is the maximum length of a name, in bytes. C++ templates have the longest
	// names, which compilers truncate or hash at several thousand characters.
	MaxName = 16 << 10
	// MaxValues is the maximum number of value types. perf record can count all system
	// call tracepoints at once, about 700.
	MaxValues = 1 << 10
	// MaxUnpacked is the maximum uncompressed size of an input, in bytes. Highly
	// compressed data could keep a CPU busy for days.
	MaxUnpacked = 64 << 30
	// MaxHeld is the maximum size, in bytes, of an input that must be in memory as a
	// whole.
	MaxHeld = 512 << 20
	// MaxLine is the maximum length of a line of text, in bytes: MaxDepth frames with
	// names of a kilobyte.
	MaxLine = 16 << 20
)

// Errors of inputs with too much to count.
var (
	errSum    = fmt.Errorf("its values add up to more than %d", int64(math.MaxInt64))
	errValues = fmt.Errorf("more than %d types of values, or too many for the number of samples", MaxValues)
)

// ErrUnpacked is the error of an input larger than MaxUnpacked.
var ErrUnpacked = errors.New("longer than 64 GiB unpacked")

// Truncated is the name of the marker that replaces truncated data: the frames of a
// stack beyond MaxDepth, or the whole stack if the tables are full.
const Truncated = "[truncated]"

// Approximate memory of a table row with its index entry, in bytes.
const (
	sizeMapping  = 200
	sizeFunction = 200
	sizeFrame    = 160
	sizeStack    = 48
	sizeTask     = 120
	sizeOwner    = 400
	sizeLabel    = 160
	sizeLabels   = 120
	sizeLabelOf  = 40 // a label in a set
	sizeSample   = 200
)

// budget is the remaining room in the tables of a profile.
type budget struct {
	bytes  int64 // memory
	frames int64 // frames of distinct samples
}

// take reserves n bytes, and reports whether there was room.
func (b *budget) take(n int) bool {
	if int64(n) > b.bytes {
		return false
	}
	b.bytes -= int64(n)
	return true
}

// maxComments is the maximum size of the comments of a profile, in bytes.
const maxComments = 256 << 10

// ShortName returns a name that is truncated to MaxName.
func ShortName(s string) string {
	if len(s) > MaxName {
		return cutName(s)
	}
	return s
}

// ShortComments returns lines of text that are truncated, and that end with [Truncated] if there
// are too many.
func ShortComments(lines []string) (kept []string) {
	const sizeLine = 16
	left := maxComments
	for _, line := range lines {
		line = ShortName(line)
		if left -= sizeLine + len(line); left < 0 {
			return append(kept, Truncated)
		}
		kept = append(kept, line)
	}
	return kept
}

// cutName truncates a name to MaxName.
func cutName(s string) string { return cutText(s, MaxName) }

// cutText truncates a longer text to a size in bytes.
func cutText(s string, size int) string {
	const mark = "…"
	end := size - len(mark)
	for i := 0; i < utf8.UTFMax-1 && !utf8.RuneStart(s[end]); i++ {
		end--
	}
	return strings.Clone(s[:end]) + mark
}
