package process

import "testing"

func TestKindOf(t *testing.T) {
	for _, tc := range []struct {
		name string
		ino  uint64
		want Kind
	}{
		{"/usr/bin/true", 5, KindFile},
		{"/tmp/gone (deleted)", 5, KindFile},
		{"/memfd:jit (deleted)", 5, KindFile}, // the content is not known yet
		{"//toolong", 5, KindFile},
		{"/SYSV/plugin.so", 5, KindFile},
		{"", 0, KindAnon},
		{"//anon", 0, KindAnon},
		{"[heap]", 0, KindAnon},
		{"[stack]", 0, KindAnon},
		{"[anon:v8]", 0, KindAnon},
		{"/dev/zero (deleted)", 5, KindAnon},
		{"/SYSV00000000 (deleted)", 5, KindAnon},
		{"/anon_hugepage (deleted)", 5, KindAnon},
		{"anon_inode:[io_uring]", 5, KindAnon},
		{"[vdso]", 0, KindVDSO},
		{"[vsyscall]", 0, KindVsyscall},
	} {
		if got := KindOf(tc.name, tc.ino); got != tc.want {
			t.Errorf("KindOf(%q, %d): got %v, want %v", tc.name, tc.ino, got, tc.want)
		}
	}
}
