package report

import (
	"fmt"
	"strings"

	"fulgur/internal/profile"
)

// memoryWork is what the kernel does for a program's memory, by functions of the kernel that do nothing
// else. Names are those of Linux 5.10 to 7.2.
var memoryWork = []struct {
	name, what string
	functions  []string
}{
	{"copy_on_write", "Copying pages shared since a fork (copy-on-write)", []string{"do_wp_page", "wp_page_copy", "do_huge_pmd_wp_page", "hugetlb_wp", "hugetlb_cow"}},
	{"fork", "Copying page tables for fork", []string{"copy_page_range", "copy_p4d_range", "copy_pte_range", "copy_huge_pmd"}},
	{"first_touch", "Touching pages for the first time", []string{"do_anonymous_page", "do_huge_pmd_anonymous_page", "__do_huge_pmd_anonymous_page", "hugetlb_no_page"}},
	{"swap_in", "Reading pages from swap", []string{"do_swap_page", "swapin_readahead"}},
}

// memory finds time that belongs to page faults and forks: CPU time, or else the value, and time off the CPU.
func memory(f *facts) (Finding, bool) {
	values := []int{f.value}
	if on := f.find("cpu"); on >= 0 {
		values[0] = on
	}
	if off := f.find("off-cpu"); off >= 0 && off != values[0] {
		values = append(values, off)
	}
	kinds := f.memoryKinds()
	var parts []string
	numbers := map[string]float64{}
	for k, work := range memoryWork {
		for _, v := range values {
			var sum int64
			for _, s := range f.Samples {
				if kinds[s.Stack] == k+1 {
					sum += s.Values[v]
				}
			}
			whole := f.Magnitude(v)
			if whole <= 0 || float64(sum) < memoryShare*float64(whole) {
				continue
			}
			share := float64(sum) / float64(whole)
			numbers[work.name+"_share"] = max(numbers[work.name+"_share"], share)
			parts = append(parts, fmt.Sprintf("%s took %s, %s of %s", work.what, f.quantity(sum, f.ValueTypes[v]), percent(share), f.allOf(v)))
		}
	}
	if len(parts) == 0 {
		return Finding{}, false
	}
	return Finding{Numbers: numbers, marked: strings.Join(parts, ". ") + "."}, true
}

// memoryKinds returns for each stack the number of its kind in memoryWork, from 1, by its outermost such
// function; 0 for none.
func (f *facts) memoryKinds() []int {
	byName := map[string]int{}
	for k, work := range memoryWork {
		for _, name := range work.functions {
			byName[name] = k + 1
		}
	}
	ofFrame := make([]int, len(f.Frames))
	for id := 1; id < len(ofFrame); id++ {
		if f.Frames[id].Kind == profile.KindKernel {
			ofFrame[id] = byName[function(f.GroupName(profile.FrameID(id)))]
		}
	}
	kinds := make([]int, len(f.Stacks))
	for id := 1; id < len(kinds); id++ {
		if kinds[id] = kinds[f.Stacks[id].Parent]; kinds[id] == 0 {
			kinds[id] = ofFrame[f.Stacks[id].Frame]
		}
	}
	return kinds
}

// function returns the name of a function of the kernel without what the compiler appended, as in
// "do_anonymous_page.isra.0".
func function(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}
