package histogram

import (
	"slices"
	"strings"
	"testing"
)

// The expected lines are the output of libbpf-tools' biolatency.
func TestLines(t *testing.T) {
	const want = `     usecs               : count    distribution
         0 -> 1          : 0        |                                        |
         2 -> 3          : 1        |*****                                   |
         4 -> 7          : 0        |                                        |
         8 -> 15         : 8        |****************************************|
        16 -> 31         : 7        |***********************************     |`
	if got := strings.Join(Lines("usecs", []uint64{0, 1, 0, 8, 7, 0, 0}), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := Lines("usecs", make([]uint64, 32)); got != nil {
		t.Errorf("no requests: got %q, want nil", got)
	}
}

func TestFilled(t *testing.T) {
	all, want := Lines("nsecs", []uint64{0, 0, 3, 0, 1}), 3
	got := Filled("nsecs", []uint64{0, 0, 3, 0, 1})
	if len(got) != 1+want || got[0] != all[0] || !slices.Equal(got[1:], all[3:]) {
		t.Errorf("got\n%s\nwant the first line and the last %d of\n%s", strings.Join(got, "\n"), want, strings.Join(all, "\n"))
	}
	if got := Filled("nsecs", []uint64{1, 0}); !slices.Equal(got, Lines("nsecs", []uint64{1, 0})) {
		t.Errorf("slot 0 is not empty: got %q", got)
	}
	if got := Filled("nsecs", make([]uint64, 8)); got != nil {
		t.Errorf("no intervals: got %q, want nil", got)
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, line := range Lines("nsecs", []uint64{1, 0, 20, 40}) {
		if got := Fit(line, 100); got != line {
			t.Errorf("got %q, want %q", got, line)
		}
	}
	full := Lines("nsecs", []uint64{0, 40})[2]
	half := Lines("nsecs", []uint64{20, 40})[1]
	columns := len(full) - 20
	for _, test := range []struct{ line, want string }{
		{full, strings.Repeat("*", 20)},
		{half, strings.Repeat("*", 10) + strings.Repeat(" ", 10)},
	} {
		got := Fit(test.line, columns)
		if len(got) != columns || !strings.HasSuffix(got, "|"+test.want+"|") || got[:30] != test.line[:30] {
			t.Errorf("got %q, want the line with the bar %q", got, test.want)
		}
	}
	if got := Fit(full, 10); got != full {
		t.Errorf("got %q without room for a bar, want %q", got, full)
	}
	if line := strings.Repeat("another line | ", 10); Fit(line, 60) != line {
		t.Errorf("got %q, want %q", Fit(line, 60), line)
	}
}
