package target

import (
	"fmt"
	"os"
	"strconv"
)

// ThreadsOf returns the IDs of the threads that process pid has at this moment.
// A caller that must miss none lists again, after it has taken hold of those
// it knows, until no new ones appear.
func ThreadsOf(pid int) ([]int, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	tids := make([]int, 0, len(entries))
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, fmt.Errorf("threads of process %d: %w", pid, err)
		}
		tids = append(tids, tid)
	}
	return tids, nil
}
