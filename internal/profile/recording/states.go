package recording

import (
	"fulgur/internal/profile"
)

// States are the times that a thread spent in each state, in nanoseconds, for each of equal slices of a recording. A thread
// is runnable if it was preempted or, as far as the recording knows, woken, and had no CPU. The
// rest of a slice is unknown: the thread did not exist, or its time was not recorded.
type States struct {
	Thread                     profile.ThreadID
	Running, Runnable, Waiting []int64
}

// Total returns the sum of the times of a state.
func Total(slices []int64) (sum int64) {
	for _, n := range slices {
		sum += n
	}
	return sum
}

// StatesOf returns the states of the threads that have any, in a number of slices. The time before a sample that it
// stands for is running time. waits reports whether the recording has periods off the CPU. It fails if
// the events cannot be read.
func StatesOf(line *profile.Timeline, count int) (list []States, waits bool, err error) {
	within := grid{line.Start, max(line.End-line.Start, 1), count}
	for id := range line.Threads {
		s := States{profile.ThreadID(id), make([]int64, count), make([]int64, count), make([]int64, count)}
		found := false
		for w, err := range line.Events.OffCPU(s.Thread) {
			if err != nil {
				return nil, false, err
			}
			found, waits = true, true
			end := w.Start + w.Duration
			woken := max(w.Start, end-w.Runnable)
			if w.State == profile.StateRunnable {
				woken = w.Start
			}
			within.add(s.Waiting, w.Start, woken)
			within.add(s.Runnable, woken, end)
		}
		for on, err := range line.Events.OnCPU(s.Thread) {
			if err != nil {
				return nil, false, err
			}
			found = true
			within.add(s.Running, max(on.Time-on.Weight, min(within.start, on.Time)), on.Time)
		}
		for i := range s.Running { // a sample can stand for more time than is left
			s.Running[i] = min(s.Running[i], max(0, within.at(i+1)-within.at(i)-s.Runnable[i]-s.Waiting[i]))
		}
		if found {
			list = append(list, s)
		}
	}
	return list, waits, nil
}

// grid divides a recording into equal slices.
type grid struct {
	start, length int64
	count         int
}

// at returns the start of a slice, or the end of the last one.
func (s grid) at(i int) int64 {
	return s.start + int64(float64(s.length)*(float64(i)/float64(s.count)))
}

// add adds the time from one time to another to the slices that have it.
func (s grid) add(times []int64, from, to int64) {
	from, to = max(from, s.start), min(to, s.start+s.length)
	if from >= to {
		return
	}
	first := int(float64(from-s.start) / float64(s.length) * float64(s.count))
	for i := max(first-1, 0); i < s.count && s.at(i) < to; i++ {
		times[i] += max(0, min(to, s.at(i+1))-max(from, s.at(i)))
	}
}
