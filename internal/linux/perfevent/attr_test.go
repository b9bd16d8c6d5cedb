package perfevent

import "testing"

// The kernel's precise_ip is two bits wide, the lower one at bit 15 of the
// flags (perf_event_open(2)).
func TestPreciseBits(t *testing.T) {
	for precise := range maxPrecise + 1 {
		if got := (Attr{Precise: precise}).raw().Bits >> 15 & 3; got != uint64(precise) {
			t.Errorf("Precise %d: got precise_ip %d, want %d", precise, got, uint64(precise))
		}
	}
}
