package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/profile"
)

// split finds the function where the calls branch: from the outermost functions, it follows the
// largest callee as long as that has most of its caller's value.
func split(f *facts) (Finding, bool) {
	if f.whole <= 0 {
		return Finding{}, false
	}
	group := make([]string, len(f.Frames)) // "" of a note
	for id := 1; id < len(group); id++ {
		if f.Frames[id].Kind != profile.KindMarker {
			group[id] = f.GroupName(profile.FrameID(id))
		}
	}
	type stack struct {
		frames []profile.FrameID // outermost first
		value  int64
	}
	var stacks []stack
	for _, s := range f.Samples {
		if s.Values[f.value] > 0 {
			frames := f.AppendFrames(nil, s.Stack)
			slices.Reverse(frames)
			stacks = append(stacks, stack{frames, s.Values[f.value]})
		}
	}
	trunk, sum := profile.FrameID(0), f.whole
	for depth := 0; ; depth++ {
		sums := map[string]int64{}
		frameOf := map[string]profile.FrameID{}
		for _, s := range stacks {
			if depth < len(s.frames) && group[s.frames[depth]] != "" {
				name := group[s.frames[depth]]
				sums[name] += s.value
				frameOf[name] = s.frames[depth]
			}
		}
		names := make([]string, 0, len(sums))
		for name := range sums {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
		if len(names) > 0 && float64(sums[names[0]]) >= trunkShare*float64(sum) {
			trunk, sum = frameOf[names[0]], sums[names[0]]
			stacks = slices.DeleteFunc(stacks, func(s stack) bool { return depth >= len(s.frames) || group[s.frames[depth]] != names[0] })
			continue
		}
		large := slices.DeleteFunc(names, func(name string) bool { return f.share(sums[name]) < splitShare })
		if trunk == 0 || len(large) < 2 {
			return Finding{}, false
		}
		found := Finding{Numbers: map[string]float64{"share": f.share(sum)}}
		var parts []string
		for i, name := range large[:min(len(large), 3)] {
			parts = append(parts, fmt.Sprintf("%s (%s)", named(name), percent(f.share(sums[name]))))
			found.Numbers[fmt.Sprintf("callee_%d_share", i+1)] = f.share(sums[name])
		}
		found.marked = fmt.Sprintf("The calls branch in %s (%s): it calls %s and %s.", named(group[trunk]), percent(f.share(sum)),
			strings.Join(parts[:len(parts)-1], ", "), parts[len(parts)-1])
		return found, true
	}
}
