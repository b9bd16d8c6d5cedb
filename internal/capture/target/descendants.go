package target

import (
	"fmt"
	"slices"

	"fulgur/internal/linux/procfs"
)

// Descendants returns the running descendants of pids, without pids. A process whose parent
// has exited is a child of init and no longer a descendant. To miss no descendant, a caller
// attaches to the known ones and calls Descendants again, until there are no new ones.
func Descendants(pids []int) ([]int, error) {
	all, err := procfs.Processes()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	for _, pid := range all {
		// Leave out processes that have exited meanwhile.
		if s, err := procfs.Process(pid).Stat(); err == nil && !s.Ended() {
			children[s.Parent] = append(children[s.Parent], pid)
		}
	}
	var found []int
	for todo := slices.Clone(pids); len(todo) > 0; todo = todo[1:] {
		for _, child := range children[todo[0]] {
			// A PID that was reused meanwhile could create a cycle.
			if !slices.Contains(pids, child) && !slices.Contains(found, child) {
				found, todo = append(found, child), append(todo, child)
			}
		}
	}
	return found, nil
}

// AnyAlive reports whether any of the processes is running.
func AnyAlive(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		s, err := procfs.Process(pid).Stat()
		return err == nil && !s.Ended()
	})
}
