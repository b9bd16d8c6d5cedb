package bolt

import "testing"

// TestProfileName checks that the build ID can be read from the name.
func TestProfileName(t *testing.T) {
	for _, tc := range []struct{ name, id, want string }{
		{"/usr/bin/prog", "0123456789abcdef", "prog.0123456789abcdef.preagg"},
		{"libfoo.so.1", "", "libfoo.so.1.preagg"},
	} {
		got := ProfileName(&Binary{Name: tc.name, BuildID: tc.id})
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
		if id := ProfileBuildID("/some/dir/" + got); id != tc.id {
			t.Errorf("%s: got build ID %q, want %q", got, id, tc.id)
		}
	}
}
