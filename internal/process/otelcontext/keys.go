package otelcontext

import (
	"time"

	"fulgur/internal/files/budget"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/process"
)

const (
	// retryKeys is the time after which a process is asked again for keys that it lacks.
	retryKeys = time.Second
	// Limits on the time for asking processes: maxAsking at a time, and in the long run
	// 1/askingShare of the elapsed time.
	maxAsking   = 250 * time.Millisecond
	askingShare = 8
	// maxKnown limits the remembered images.
	maxKnown = 1 << 12
)

// Keys finds the keys of the attributes of threads, which refer to them by index. It is not safe
// for concurrent use.
type Keys struct {
	known  map[imageKey]*image
	budget *safeopen.Budget
	asking *budget.Time                           // for asking processes
	ask    func(pid int, k *known, now time.Time) // for tests
}

// imageKey identifies a process image. Samples of an image may arrive after the first ones of the
// process's next image.
type imageKey struct {
	pid   int
	epoch uint64
}

// image is the state of a process image.
type image struct {
	known
	next time.Time // when to ask again
}

// NewKeys returns a Keys that knows no process yet.
func NewKeys() *Keys {
	k := &Keys{known: map[imageKey]*image{}, budget: safeopen.NewBudget(), asking: budget.New(maxAsking, askingShare)}
	k.ask = func(pid int, of *known, now time.Time) {
		memory := process.NewMemory(pid, k.budget)
		if of.address != 0 {
			of.update(memory)
		}
		if of.address == 0 {
			of.search(pid, memory, k.budget, now)
		}
	}
	return k
}

// Expect reads the keys of process pid, which runs the image with the given epoch. When they are
// needed, the process may have ended.
func (k *Keys) Expect(pid int, epoch uint64) {
	is := k.image(pid, epoch)
	k.read(pid, is, 0)
	if len(is.keys) == 0 {
		is.next = time.Time{} // a process may publish them just before their first use
	}
}

// Of returns the keys of the attributes of threads of process pid, which runs the image with the
// given epoch. If it knows only n or fewer, it reads them again, unless it did so recently. The
// number of keys of an image never decreases.
func (k *Keys) Of(pid int, epoch uint64, n int) []string {
	is := k.image(pid, epoch)
	k.read(pid, is, n)
	return is.keys
}

// image returns the state of a process image.
func (k *Keys) image(pid int, epoch uint64) *image {
	key := imageKey{pid, epoch}
	is := k.known[key]
	if is == nil {
		if len(k.known) >= maxKnown {
			clear(k.known)
		}
		is = new(image)
		k.known[key] = is
	}
	return is
}

// read reads the keys of process pid, unless more than n are known, or it did so recently.
func (k *Keys) read(pid int, is *image, n int) {
	if len(is.keys) > n {
		return
	}
	now := time.Now()
	if now.Before(is.next) || k.asking.Left() == 0 {
		return
	}
	is.next = now.Add(retryKeys)
	before := is.keys
	k.ask(pid, &is.known, now)
	k.asking.Spend(time.Since(now))
	if len(is.keys) < len(before) {
		is.keys = before // the process has ended, or did not answer
	}
}
