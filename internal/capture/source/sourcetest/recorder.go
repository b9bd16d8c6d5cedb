// Package sourcetest helps to test the events of sources.
package sourcetest

import (
	"fmt"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile"
)

// Recorder is a recording that began at 1000 ns. It names files and threads after their IDs, and
// keeps the last sample. It panics at events: a test embeds it and adds the method for its event.
type Recorder struct {
	source.Recorder
	Key    stacks.Key
	Counts stacks.Values
}

// Stack keeps the sample. The stack is always 3.
func (r *Recorder) Stack(key stacks.Key, v stacks.Values) profile.StackID {
	r.Key, r.Counts = key, v
	return 3
}

// Thread returns 708 for thread 8 of process 7.
func (*Recorder) Thread(pid, tid uint32, _ uint64) profile.ThreadID {
	return profile.ThreadID(pid*100 + tid)
}

// Since implements [source.Recorder].
func (*Recorder) Since(at uint64) int64 { return int64(at) - 1000 }

// File returns "/file5" for file 5.
func (*Recorder) File(id uint64) string { return fmt.Sprintf("/file%d", id) }
