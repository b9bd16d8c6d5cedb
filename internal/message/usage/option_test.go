package usage

import "testing"

func TestOptionString(t *testing.T) {
	for o := range NumOptions {
		if o.String() == "" {
			t.Errorf("option %d has no name", uint8(o))
		}
	}
	var named [NumOptions]string
	named[RingSize] = "--ring-size"
	NameFlags(named)
	t.Cleanup(func() { flags.Store(nil) })
	if got, want := Errorf("raise %s", RingSize).Error(), "raise --ring-size"; got != want {
		t.Errorf("message with a named flag = %q, want %q", got, want)
	}
}
