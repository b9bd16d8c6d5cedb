package stopping

import (
	"cmp"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	proc "fulgur/internal/process"
)

// scan finds the processes and threads of the target, and those that have ended.
func (s *Sampler) scan() error {
	s.scanned = time.Now()
	defer func() { s.scanTook = time.Since(s.scanned) }()
	t := s.options.Target
	if t.Scope == target.Threads {
		for _, tid := range t.TIDs {
			status, err := procfs.Process(tid).Status()
			if err != nil {
				continue // gone
			}
			s.addThreads(s.process(status.TGID), []int{tid})
		}
	} else {
		pids := t.PIDs
		if t.Children {
			known := slices.Clone(t.PIDs)
			for _, p := range s.processes {
				if !slices.Contains(known, p.pid) {
					known = append(known, p.pid)
				}
			}
			descendants, err := target.Descendants(known)
			if err != nil {
				return err
			}
			pids = slices.Concat(known, descendants)
		}
		for _, pid := range pids {
			tids, err := procfs.Threads(pid)
			if err != nil {
				continue // gone
			}
			s.addThreads(s.process(pid), tids)
		}
	}
	for _, p := range slices.Clone(s.processes) {
		s.dropThreads(p)
	}
	return nil
}

// process returns a process of the target, nil if it is gone.
func (s *Sampler) process(pid int) *process {
	if p := s.known(pid); p != nil {
		return p
	}
	stat, err := procfs.Process(pid).Stat()
	if err != nil || stat.Ended() {
		return nil
	}
	p := &process{pid: pid, parent: stat.Parent, ours: stat.Parent == os.Getpid(), due: rand.Float64() - 0.5}
	p.image, p.since = imageOf(stat), monotonic.Now()
	s.processes = append(s.processes, p)
	if s.began.IsZero() {
		return p // the caller knows it, or learns about it from its threads
	}
	if p.refused = s.admit(p) != nil; p.refused {
		s.stats.Others++
	}
	s.forked(p, stat)
	return p
}

// forked notes a new process.
func (s *Sampler) forked(p *process, stat procfs.Stat) {
	stamp := perfevent.Stamp{Time: p.since}
	parent := s.known(p.parent)
	if parent == nil {
		parent = s.processes[0]
	}
	s.batch = append(s.batch, perfevent.Fork{Stamp: stamp, PID: p.pid, TID: p.pid, PPID: parent.pid, PTID: parent.pid})
	if parent.pid == p.parent && parent.image == p.image {
		p.maps, p.read, p.size = parent.maps, parent.read, parent.size
		return
	}
	s.batch = append(s.batch, perfevent.Comm{Stamp: stamp, PID: p.pid, TID: p.pid, Comm: stat.Comm, Exec: true})
}

// known returns a process of the target, nil if it is not known.
func (s *Sampler) known(pid int) *process {
	if i := slices.IndexFunc(s.processes, func(p *process) bool { return p.pid == pid }); i >= 0 {
		return s.processes[i]
	}
	return nil
}

// addThreads adds threads of a process that are not known. p may be nil.
func (s *Sampler) addThreads(p *process, tids []int) {
	if p == nil {
		return
	}
	for _, tid := range tids {
		if p.thread(tid) != nil {
			continue
		}
		t := &thread{pid: p.pid, tid: tid}
		if s.files < maxFiles {
			if f, err := os.Open(string(procfs.Thread(p.pid, tid)) + "/stat"); err == nil {
				t.file = f
				s.files++
			}
		}
		stat, err := t.stat(s.text)
		if err != nil || stat.Exited() {
			s.close(t)
			continue
		}
		t.start, t.comm = stat.Start, stat.Comm
		p.threads = append(p.threads, t)
		if !s.began.IsZero() && tid != p.pid {
			s.batch = append(s.batch, perfevent.Fork{Stamp: perfevent.Stamp{Time: monotonic.Now()}, PID: p.pid, TID: tid, PPID: p.pid, PTID: p.pid})
		}
		if !s.began.IsZero() {
			s.batch = append(s.batch, perfevent.Comm{Stamp: perfevent.Stamp{Time: monotonic.Now()}, PID: p.pid, TID: tid, Comm: t.comm})
		}
	}
}

// dropThreads drops threads that have ended, and a process without any.
func (s *Sampler) dropThreads(p *process) {
	p.threads = slices.DeleteFunc(p.threads, func(t *thread) bool {
		stat, err := t.stat(s.text)
		if err == nil && !stat.Exited() {
			return false
		}
		s.exited(p, t.tid)
		s.close(t)
		p.gone += t.ran - t.first
		return true
	})
	if len(p.threads) == 0 {
		s.remove(p)
	}
}

// exited notes the end of a thread.
func (s *Sampler) exited(p *process, tid int) {
	s.batch = append(s.batch, perfevent.Exit{Stamp: perfevent.Stamp{Time: monotonic.Now()}, PID: p.pid, TID: tid, PPID: p.parent, PTID: p.parent})
}

// remove drops a process that has ended.
func (s *Sampler) remove(p *process) {
	if used, ok := clock(p.pid); ok { // not yet reaped
		p.used = used
	}
	for _, t := range p.threads {
		s.exited(p, t.tid)
	}
	s.forget(p)
	s.options.Interpreters.forget(p.pid)
	s.ended += s.usedBy(p)
	s.processes = slices.DeleteFunc(s.processes, func(one *process) bool { return one == p })
}

// forget closes the files of a process.
func (s *Sampler) forget(p *process) {
	for _, t := range p.threads {
		s.close(t)
	}
	if p.mem != nil {
		_ = p.mem.Close()
		p.mem = nil
	}
}

func (s *Sampler) close(t *thread) {
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
		s.files--
	}
}

// mapsShare limits the time for reading mappings to one part in that of all time.
const mapsShare = 20

// readMaps reads the mappings of a process if they have changed, or if the sample in s.state is outside of them. It
// reports whether they are known.
func (s *Sampler) readMaps(p *process, t *thread, stat procfs.Stat) bool {
	now := monotonic.Now()
	rested := now > p.read+mapsShare*uint64(p.took)
	if p.maps != nil && (!rested || stat.Size == p.size && p.covers(s.state.regs.PC())) {
		return true
	}
	maps, err := proc.ReadMaps(p.pid)
	if err != nil {
		return p.maps != nil
	}
	until := monotonic.Now()
	if again, err := t.stat(s.text); err != nil || imageOf(again) != p.image {
		return false // they may be those of another program
	}
	from := p.since
	if p.maps != nil {
		from = p.read
	}
	for _, m := range maps {
		if i, found := slices.BinarySearchFunc(p.maps, m.Start, func(k procfs.Map, start uint64) int { return cmp.Compare(k.Start, start) }); found && p.maps[i] == m {
			continue
		}
		s.batch = append(s.batch, perfevent.Mmap2{
			Stamp: perfevent.Stamp{Time: from}, PID: p.pid, TID: p.pid, Addr: m.Start, Len: m.Limit - m.Start, Pgoff: m.Offset,
			Maj: m.Maj, Min: m.Min, Ino: m.Ino, Filename: m.Name,
		})
	}
	p.maps, p.read, p.size, p.took = maps, until, stat.Size, time.Duration(until-now)
	return true
}

// covers reports whether code at an address is in the known mappings.
func (p *program) covers(pc uint64) bool {
	i, found := slices.BinarySearchFunc(p.maps, pc, func(m procfs.Map, pc uint64) int { return cmp.Compare(m.Start, pc) })
	if !found {
		i--
	}
	return i >= 0 && pc < p.maps[i].Limit
}
