package unwinding

import (
	"testing"
	"time"
)

// The cost of a process with many mappings does not grow with the rate of its changes or
// requests.
func TestPace(t *testing.T) {
	now := time.Now()
	p := pace{}
	if p.rests(1, now) {
		t.Error("a process rests before it is laid out")
	}
	p.took(1, manyMappings, now)
	if p.rests(1, now) || len(p) > 0 {
		t.Error("a process with few mappings rests")
	}
	const many = 50_000
	p.took(1, many, now)
	if !p.rests(1, now) || !p.rests(1, now.Add(many*restPerMapping-1)) {
		t.Error("a process with many mappings does not rest")
	}
	if p.rests(1, now.Add(many*restPerMapping)) || p.rests(2, now) {
		t.Error("a process rests for too long, or another process rests")
	}
	p.took(1, 3, now)
	if p.rests(1, now) {
		t.Error("a process with few mappings still rests, because it had many")
	}
}

// A process that floods the rings does not cause new layouts of all other processes for each
// lost record.
func TestDoubt(t *testing.T) {
	var d doubt
	start := time.Now()
	if d.due(start) {
		t.Error("got a reset without lost records")
	}
	resets := 0
	const polls = 1000
	for i := range polls {
		d.wanted = true
		if d.due(start.Add(time.Duration(i) * restOfDoubt / 100)) {
			resets++
		}
	}
	if want := polls / 100; resets != want {
		t.Errorf("got %d resets, want %d", resets, want)
	}
	if !d.wanted {
		t.Error("the last loss is forgotten")
	}
	if !d.due(start.Add(100*restOfDoubt)) || d.wanted {
		t.Error("got no reset after the last loss")
	}
}
