package branches

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
)

// Only members that run a wanted binary are stepped. A member whose binary is not known
// yet is checked again.
func TestMembers(t *testing.T) {
	running, unanswered := map[int]bool{10: true, 11: false}, 0
	var changes []string
	c := &members{
		target:  target.Target{Scope: target.Processes, PIDs: []int{10, 11}},
		wanted:  func(pid int) (wanted, known bool) { return running[pid], pid != unanswered },
		add:     func(pid int) error { changes = append(changes, fmt.Sprintf("+%d", pid)); return nil },
		drop:    func(pid int) error { changes = append(changes, fmt.Sprintf("-%d", pid)); return nil },
		members: map[int]memberState{},
	}
	for _, step := range []struct {
		name    string
		record  perfevent.Record
		running map[int]bool
		want    string
		soon    bool // whether it is checked again soon
	}{
		{"first", nil, nil, "+10", false},
		{"again", nil, nil, "", false},
		{"11 maps it", perfevent.Mmap2{PID: 11}, map[int]bool{11: true}, "+11", true},
		{"10 maps something", perfevent.Mmap2{PID: 10}, nil, "", false},
		{"a stranger", perfevent.Mmap2{PID: 12}, nil, "", false},
		{"a new thread", perfevent.Fork{PID: 10, PPID: 10, TID: 13}, nil, "", false},
		{"a child", perfevent.Fork{PID: 13, PPID: 10, TID: 13}, nil, "", true},
		{"10 executes something else", perfevent.Comm{PID: 10, TID: 10, Exec: true}, map[int]bool{10: false}, "-10", true},
		{"10 executes it again", perfevent.Comm{PID: 10, TID: 10, Exec: true}, map[int]bool{10: true}, "+10", true},
		{"10 executes it twice", perfevent.Comm{PID: 10, TID: 10, Exec: true}, nil, "-10 +10", true},
		{"10 gets a name", perfevent.Comm{PID: 10, TID: 10}, nil, "", false},
		{"a thread ends", perfevent.Exit{PID: 10, TID: 13}, nil, "", false},
		{"its pid is reused", perfevent.Exit{PID: 11, TID: 11}, nil, "+11", false},
		{"records lost", perfevent.Lost{}, nil, "", false},
	} {
		for pid, wanted := range step.running {
			running[pid] = wanted
		}
		if step.record != nil {
			c.handleRecord(step.record)
		}
		if c.stale != step.soon {
			t.Errorf("%s: got stale %v, want %v", step.name, c.stale, step.soon)
		}
		changes = nil
		c.looked = time.Time{} // long ago
		if err := c.follow(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(changes, " "); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
	unanswered = 11
	c.handleRecord(perfevent.Comm{PID: 11, Exec: true})
	for _, want := range []string{"-11", "", "+11"} {
		changes, c.looked = nil, time.Time{}
		if err := c.follow(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(changes, " "); got != want || c.stale != (want != "+11") {
			t.Errorf("/proc/11 does not answer: got %q, want %q; stale %v", got, want, c.stale)
		}
		if want == "" {
			unanswered = 0
		}
	}
	running[11] = false
	c.handleRecord(perfevent.Comm{PID: 11, Exec: true})
	changes = nil
	if err := c.follow(); err != nil || len(changes) > 0 {
		t.Errorf("got a second check at once: %q, %v", changes, err)
	}
}

// An excluded process is not found by a search, but may be given explicitly.
func TestMembersFind(t *testing.T) {
	self := os.Getpid()
	for _, test := range []struct {
		target   target.Target
		excluded []int
		want     bool
	}{
		{target.Target{}, nil, true},
		{target.Target{}, []int{self}, false},
		{target.Target{Scope: target.Processes, PIDs: []int{self}}, []int{self}, true},
		{target.Target{Scope: target.Processes, PIDs: []int{os.Getppid()}}, nil, false},
		{target.Target{Scope: target.Processes, PIDs: []int{os.Getppid()}, Children: true}, nil, true},
		{target.Target{Scope: target.Processes, PIDs: []int{os.Getppid()}, Children: true}, []int{self}, false},
	} {
		c := members{target: test.target, excluded: test.excluded}
		pids, err := c.find()
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(pids, self); got != test.want {
			t.Errorf("%+v: got %v, want %v", c, got, test.want)
		}
	}
}
