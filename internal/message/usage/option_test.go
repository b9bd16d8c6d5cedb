package usage

import "testing"

func TestOptionString(t *testing.T) {
	if got, want := RingSize.String(), "the ring size"; got != want {
		t.Errorf("without flags: got %q, want %q", got, want)
	}
	NameFlags(map[Option]string{RingSize: "--ring-size"})
	t.Cleanup(func() { flags.Store(nil) })
	if got, want := Errorf("raise %s", RingSize).Error(), "raise --ring-size"; got != want {
		t.Errorf("message with a named flag = %q, want %q", got, want)
	}
}
