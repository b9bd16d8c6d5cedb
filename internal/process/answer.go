package process

import "fulgur/internal/answer"

// volume is what may fail to answer: a file system by its device number or, where
// that is not known yet, what a process sees.
type volume struct {
	maj, min uint32
	pid      int
}

// volume is where the file is.
func (k FileKey) volume() volume { return volume{maj: k.Maj, min: k.Min} }

// onDisk reports whether v is on a disk of this machine, which answers: what has
// none, as a network's file system, has a made-up device with major number 0.
func (v volume) onDisk() bool { return v.pid == 0 && v.maj != 0 }

// ask is [answer.Ask], but of a volume on a disk, which keeps nobody waiting.
func ask[T any](a *answer.Asker[volume], v volume, question func() (T, error), late func(T, error)) (T, error) {
	if v.onDisk() {
		return question()
	}
	return answer.Ask(a, v, question, late)
}
