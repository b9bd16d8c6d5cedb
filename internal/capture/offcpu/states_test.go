package offcpu

import "testing"

func TestParseStates(t *testing.T) {
	for text, want := range map[string]States{"R": 1, "S": 2, "D": 4, "SD": 6, "S,D": 6, "T": 8, "t": 16, "I": 64, "0": 1, "1": 2, "2": 4, "0x402": 64} {
		if got, err := ParseStates(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "Q", "s", ",", "3", "-1", "X"} {
		if got, err := ParseStates(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

func FuzzParseStates(f *testing.F) {
	f.Add("S,D")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseStates(text); err == nil && s == 0 {
			t.Errorf("%q: got no state and no error", text)
		}
	})
}
