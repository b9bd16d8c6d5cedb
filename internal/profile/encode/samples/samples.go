// Package samples writes individual samples as they are taken: as text for people, and as
// lines of JSON for programs.
package samples

import (
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// Sample is a single sample. Its IDs refer to a [profile.Profile].
type Sample struct {
	Time  time.Time
	Stack profile.StackID
	Task  profile.TaskID
	CPU   int
	// Weight is the period of the sample: the time or number of events that it
	// represents.
	Weight int64
	End    stackend.End
}

// Batch is a number of samples in the order in which they were taken.
type Batch struct {
	// Profile has the tables to which the samples refer, and no samples.
	Profile *profile.Profile
	Samples []Sample
	// Dropped is the number of samples dropped since the last batch because the reader is
	// too slow.
	Dropped uint64
}

// activation is an executed or calling instruction with the functions inlined there:
// frames of the profile, innermost first.
type activation []profile.FrameID

// halves splits the frames of a stack, leaf first, by instruction into kernel and user
// frames. Markers count as user frames.
func halves(p *profile.Profile, frames []profile.FrameID) (kernel, user []activation) {
	for begin := 0; begin < len(frames); {
		end := begin + 1
		for end < len(frames) && p.Frames[frames[end-1]].Inlined {
			end++
		}
		at := activation(frames[begin:end])
		if p.Frames[at[0]].Kind == profile.KindKernel {
			kernel = append(kernel, at)
		} else {
			user = append(user, at)
		}
		begin = end
	}
	return kernel, user
}
