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
	above := make([]int64, len(f.Stacks)) // by stack
	for _, s := range f.Samples {
		above[s.Stack] += max(s.Values[f.value], 0)
	}
	f.AddUp(above)
	callees := f.Callees()
	trunk, sum := "", f.whole
	for at := []profile.StackID{0}; ; {
		byName := map[string][]profile.StackID{}
		sums := map[string]int64{}
		for _, caller := range at {
			for id := callees.First[caller]; id != 0; id = callees.Next[id] {
				if name := group[f.Stacks[id].Frame]; name != "" && above[id] > 0 {
					byName[name] = append(byName[name], id)
					sums[name] += above[id]
				}
			}
		}
		names := make([]string, 0, len(sums))
		for name := range sums {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
		if len(names) > 0 && float64(sums[names[0]]) >= trunkShare*float64(sum) {
			trunk, sum, at = names[0], sums[names[0]], byName[names[0]]
			continue
		}
		large := slices.DeleteFunc(names, func(name string) bool { return f.share(sums[name]) < splitShare })
		if trunk == "" || len(large) < 2 {
			return Finding{}, false
		}
		found := Finding{Numbers: map[string]float64{"share": f.share(sum)}}
		var parts []string
		for i, name := range large[:min(len(large), 3)] {
			parts = append(parts, fmt.Sprintf("%s (%s)", named(name), percent(f.share(sums[name]))))
			found.Numbers[fmt.Sprintf("callee_%d_share", i+1)] = f.share(sums[name])
		}
		found.marked = fmt.Sprintf("The calls branch in %s (%s): it calls %s and %s.", named(trunk), percent(f.share(sum)),
			strings.Join(parts[:len(parts)-1], ", "), parts[len(parts)-1])
		return found, true
	}
}
