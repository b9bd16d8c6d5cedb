package process

import (
	"golang.org/x/sys/unix"

	"fulgur/internal/answer"
)

// volume is where the file is.
func (k FileKey) volume() answer.Place { return answer.Place{Device: unix.Mkdev(k.Maj, k.Min)} }

// near is what a process sees.
func near(pid int) answer.Place { return answer.Place{Near: procPath(pid, "root")} }

// ask is [answer.Ask] of the file's volume, but for one on a disk, which keeps nobody
// waiting.
func ask[T any](k FileKey, question func() (T, error), late func(T, error)) (T, error) {
	if k.Maj != 0 {
		return question()
	}
	return answer.Ask(k.volume(), question, late)
}
