package unwinding

import (
	"testing"
	"time"
)

// The cost of a process with many mappings does not grow with the rate of its
// changes or requests.
func TestPace(t *testing.T) {
	now := time.Now()
	p := pace{}
	if p.rests(1, now) {
		t.Error("a process rests that was never laid out")
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
		t.Error("a process rests for too long, or another one does")
	}
	p.took(1, 3, now)
	if p.rests(1, now) {
		t.Error("a process with few mappings rests because it had many")
	}
}

// A process that floods the rings with records does not cost the others their tables
// each time that records are lost.
func TestDoubt(t *testing.T) {
	var d doubt
	start := time.Now()
	if d.due(start) {
		t.Error("processes are laid out anew though no record was lost")
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
		t.Errorf("processes are laid out anew %d times, want %d", resets, want)
	}
	if !d.wanted {
		t.Error("the records that were lost last are forgotten")
	}
	if !d.due(start.Add(100*restOfDoubt)) || d.wanted {
		t.Error("processes are not laid out anew after the last loss")
	}
}
