package containers

import (
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/procfs"
)

// maxArguments limits the arguments of a daemon.
const maxArguments = 64 << 10

// daemon is a running daemon.
type daemon struct {
	name string
	args []string
}

// daemonSearch searches the running daemons of docker and containerd. A machine may have
// thousands of processes, so each is examined only in two searches: by the second one, it has
// executed its program.
type daemonSearch struct {
	seen  map[int]int // times, by PID
	found map[int]daemon
	look  func(pid int) (daemon, bool)
}

// maxLooks is the number of times that a process is examined.
const maxLooks = 2

func newDaemonSearch() *daemonSearch {
	return &daemonSearch{seen: map[int]int{}, found: map[int]daemon{}, look: lookAtDaemon}
}

// running returns the daemons among the processes.
func (s *daemonSearch) running() (all []daemon) {
	pids, err := procfs.Processes()
	if err != nil {
		return nil
	}
	return s.among(pids)
}

func (s *daemonSearch) among(pids []int) (all []daemon) {
	seen, found := map[int]int{}, map[int]daemon{}
	for _, pid := range pids {
		d, ok := s.found[pid]
		if seen[pid] = s.seen[pid]; seen[pid] < maxLooks {
			seen[pid]++
			d, ok = s.look(pid)
		}
		if ok {
			found[pid] = d
			all = append(all, d)
		}
	}
	s.seen, s.found = seen, found
	return all
}

// lookAtDaemon returns a process called dockerd or containerd that belongs to root and has the
// same root directory as this process. A process in a container may have any name, but has
// another root.
func lookAtDaemon(pid int) (daemon, bool) {
	s, err := procfs.Process(pid).Stat()
	if err != nil || s.Comm != "dockerd" && s.Comm != "containerd" {
		return daemon{}, false
	}
	status, err := procfs.Process(pid).Status()
	if err != nil || status.UIDs != [4]uint32{} {
		return daemon{}, false
	}
	own, err := safeopen.StatRoot("/")
	if err != nil {
		return daemon{}, false
	}
	root, err := safeopen.StatRoot(procfs.Path(pid, "root"))
	if err != nil || !safeopen.Same(own, root) {
		return daemon{}, false
	}
	args, err := procfs.Process(pid).Arguments(maxArguments)
	return daemon{s.Comm, args}, err == nil
}
