package unwinding

import (
	"testing"
	"time"
)

// What a process with many mappings costs does not grow with how often they change
// or are asked for.
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
