package unwinding

import (
	"slices"
	"testing"
	"time"
)

// take returns the tasks that are due, by process.
func take(b *backlog, now time.Time) (all []task) {
	all = slices.Collect(b.due(now))
	slices.SortFunc(all, func(x, y task) int { return x.pid - y.pid })
	return all
}

func TestBacklog(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		note func(*backlog)
		want []task
		left []task // a minute later
	}{
		"nothing": {note: func(*backlog) {}},
		"changed": {note: func(b *backlog) {
			b.mapped(1)
			b.mapped(1)
		}, want: []task{{pid: 1}}},
		"requested": {note: func(b *backlog) {
			b.asked(1, 7)
			b.asked(1, 8) // now it runs another program
		}, want: []task{{1, true, 8}}},
		"requested and changed": {note: func(b *backlog) {
			b.mapped(1)
			b.asked(1, 7)
		}, want: []task{{1, true, 7}}},
		"child of a changed process": {note: func(b *backlog) {
			b.mapped(1)
			b.forked(1, 2)
			b.forked(2, 3)
			b.forked(4, 5)
		}, want: []task{{pid: 1}, {pid: 2}, {pid: 3}}},
		"child of a requested process": {note: func(b *backlog) {
			b.asked(1, 7)
			b.forked(1, 2)
		}, want: []task{{1, true, 7}}},
		"forgotten": {note: func(b *backlog) {
			b.mapped(1)
			b.asked(1, 7)
			b.pace.took(1, manyMappings*1000, now)
			b.forget(1)
			b.mapped(1)
		}, want: []task{{pid: 1}}},
		"resting": {note: func(b *backlog) {
			for pid := 1; pid <= 2; pid++ {
				b.pace.took(pid, manyMappings+1, now)
			}
			b.asked(1, 7)
			b.mapped(2)
			b.mapped(3)
		}, want: []task{{pid: 3}}, left: []task{{1, true, 7}, {pid: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBacklog()
			test.note(&b)
			if got := take(&b, now); !slices.Equal(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if got := take(&b, now.Add(time.Minute)); !slices.Equal(got, test.left) {
				t.Errorf("a minute later: got %+v, want %+v", got, test.left)
			}
		})
	}
}

// Processes that the kernel side waits for come first. Changes during the work are kept,
// because laying out one process may bring records of others.
func TestBacklogOrder(t *testing.T) {
	b, now := newBacklog(), time.Now()
	for pid := range 50 {
		b.mapped(100 + pid)
		b.asked(200+pid, 1)
	}
	changed, again := 0, false
	for todo := range b.due(now) {
		if !todo.asked {
			changed++
		} else if changed > 0 {
			t.Fatal("got a requested process after others")
		}
		if todo.pid == 200 && !again {
			again = true
			b.mapped(200)
			b.forget(100)
		}
	}
	left := take(&b, now)
	if all := changed + len(left); all != 50 {
		t.Errorf("got %d changed processes, want 49 and the one that changed again", all)
	}
	if len(left) > 1 || len(left) == 1 && left[0].pid != 200 {
		t.Errorf("got %+v left, want at most process 200", left)
	}
}

// A process that could not be laid out is due again later, unchanged.
func TestPostpone(t *testing.T) {
	b, now := newBacklog(), time.Now()
	b.asked(1, 7)
	b.mapped(2)
	for _, task := range take(&b, now) {
		b.postpone(task, now)
	}
	if got := take(&b, now); len(got) > 0 {
		t.Errorf("got %v due at once, want none", got)
	}
	want := []task{{1, true, 7}, {pid: 2}}
	if got := take(&b, now.Add(retryEvery)); !slices.Equal(got, want) {
		t.Errorf("due later: got %v, want %v", got, want)
	}
}
