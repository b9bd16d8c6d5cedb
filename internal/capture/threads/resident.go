package threads

import (
	"slices"
	"time"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
)

// lookAtMemoryEvery is the interval at which the resident memory of processes is
// read, in ns. Only processes with events since the last time are read; each takes
// microseconds.
const lookAtMemoryEvery = int64(100 * time.Millisecond)

// LookAtMemory records the resident memory of the recording's processes, and drops
// processes that have exited.
func (l *Tracker) LookAtMemory(now int64) {
	if now-l.looked < lookAtMemoryEvery {
		return
	}
	l.looked = now
	l.recorded = slices.DeleteFunc(l.recorded, func(p *life) bool {
		switch {
		case p.end != 0:
			l.setResident(p, p.end, 0)
			return true
		case p.ran:
			p.ran = false
			if bytes, err := procfs.Process(p.id).ResidentMemory(); err == nil {
				l.setResident(p, now, bytes)
			}
		}
		return false
	})
}

func (l *Tracker) setResident(p *life, at, bytes int64) {
	if change := bytes - p.resident; change != 0 {
		l.renumber(p)
		l.Recorder.Count(profile.ProcessID(p.number), profile.CounterRSS, at, change)
		p.resident = bytes
	}
}
