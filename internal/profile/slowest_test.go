package profile

import (
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// The slowest intervals are limited in number and in size, and the slowest ones remain.
func TestSlowest(t *testing.T) {
	testenv.AnyKernel(t)
	var all []SlowInterval
	for i := range 3 * MaxSlowest {
		all = append(all, SlowInterval{Length: time.Duration(i * 7919 % (3 * MaxSlowest))})
	}
	some := Slowest(all)
	if len(some) != MaxSlowest {
		t.Fatalf("got %d, want %d", len(some), MaxSlowest)
	}
	for i, s := range some {
		if want := time.Duration(3*MaxSlowest - 1 - i); s.Length != want {
			t.Errorf("%d: got %d, want %d", i, s.Length, want)
		}
	}
	long := strings.Repeat("é", 1<<15)
	size := 0
	for _, s := range Slowest([]SlowInterval{{Comm: long, Fields: []Label{{Key: long, Value: long}}}}) {
		size += len(s.Comm) + len(s.Fields[0].Key) + len(s.Fields[0].Value)
	}
	if size == 0 || size > 3*maxSlowestField {
		t.Errorf("got %d bytes of text, want at most %d", size, 3*maxSlowestField)
	}
	hostile := SlowInterval{Fields: make([]Label, 1<<18)}
	if got := Slowest([]SlowInterval{{Length: 1}, hostile}); len(got) != 1 {
		t.Errorf("got %d intervals with more fields than fit, want 1", len(got))
	}
	if Slowest(nil) != nil {
		t.Error("got intervals from none")
	}
}
