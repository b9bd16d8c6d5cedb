// Package samples writes samples one by one, as they were taken: for people who
// watch, and as lines of JSON for programs.
package samples

import (
	"time"

	"fulgur/internal/profile"
)

// Sample is one time that a thread was met. Its identifiers are those of a
// [profile.Profile].
type Sample struct {
	Time  time.Time
	Stack profile.StackID
	Task  profile.TaskID
	CPU   int
	// Weight is the period of the sample: the time or the number of events that
	// it stands for.
	Weight int64
	End    profile.End
}

// Batch is some samples in the order in which they were taken.
type Batch struct {
	// Profile has the tables that the samples refer to, and no samples.
	Profile *profile.Profile
	Samples []Sample
	// Dropped is how many samples between the last batch and this one are left
	// out, because whoever reads is too slow.
	Dropped uint64
}

// activation is an instruction that was executed or called from, with the
// functions that are inlined there: frames of the profile, the innermost first.
type activation []profile.FrameID

// halves parts the frames of a stack, leaf first, by instruction and into those of
// the kernel and those of user space, of which markers are.
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
