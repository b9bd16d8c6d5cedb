package report

import (
	"fmt"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// interrupts says that samples of a clock come late in code that runs with interrupts disabled: its time
// is that of the function that enables them.
func interrupts(f *facts) (Finding, bool) {
	if !describe.IsClock(f.Meta) {
		return Finding{}, false
	}
	var sum int64
	name, n := most(func(add func(string, int64)) {
		for _, s := range f.Samples {
			leaf := f.leaf(s.Stack)
			if leaf == 0 || f.Frames[leaf].Kind != profile.KindKernel || !describe.EnablesInterrupts(f.GroupName(leaf)) {
				continue
			}
			sum += s.Values[f.value]
			add(f.GroupName(leaf), s.Values[f.value])
		}
	})
	if f.whole <= 0 || f.share(n) < blindShare {
		return Finding{}, false
	}
	return Finding{
		Numbers: map[string]float64{"share": f.share(sum), "function_share": f.share(n)},
		marked: fmt.Sprintf("%s enables interrupts: its %s are the time of the code before it, which runs without interrupts, so that the clock cannot sample it.",
			named(name), percent(f.share(n))),
	}, true
}
