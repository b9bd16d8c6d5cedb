package target

import (
	"fmt"
	"slices"

	"fulgur/internal/linux/procfs"
)

// Descendants returns the living processes that descend from pids, without
// pids themselves. A process whose parent has exited is init's child and no
// descendant any more. A caller that must miss none asks again, after it has
// taken hold of those it knows, until no new ones appear.
func Descendants(pids []int) ([]int, error) {
	all, err := procfs.Processes()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	for _, pid := range all {
		// One that is gone by now has no place in the list.
		if s, err := procfs.Process(pid).Stat(); err == nil && !s.Ended() {
			children[s.Parent] = append(children[s.Parent], pid)
		}
	}
	var found []int
	for todo := slices.Clone(pids); len(todo) > 0; todo = todo[1:] {
		for _, child := range children[todo[0]] {
			// A pid that was reused meanwhile could close a circle.
			if !slices.Contains(pids, child) && !slices.Contains(found, child) {
				found, todo = append(found, child), append(todo, child)
			}
		}
	}
	return found, nil
}

// AnyAlive reports whether one of the processes has not ended.
func AnyAlive(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		s, err := procfs.Process(pid).Stat()
		return err == nil && !s.Ended()
	})
}
