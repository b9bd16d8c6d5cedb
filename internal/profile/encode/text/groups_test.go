package text

import (
	"strings"
	"testing"

	"fulgur/internal/profile"
)

func TestGroups(t *testing.T) {
	types := []profile.ValueType{{Type: "requests", Unit: "count"}, {Type: "bytes", Unit: "bytes"}, {Type: "latency", Unit: "nanoseconds"}}
	groups := []Group{
		{"/a", []int64{1, 4096, 900_000}},
		{"/b\n", []int64{200, 2048, 2_000_000}},
		{"/c", []int64{1, 512, 100_000}},
		{"/d", []int64{1, 512, 200_000}},
	}
	for _, test := range []struct {
		o    GroupOptions
		want string
	}{
		{GroupOptions{By: "file", Value: 2, Rows: 2}, `
requests    bytes  latency  file
     200  2.0 KiB   2.0 ms  /b\n
       1  4.0 KiB   0.9 ms  /a
       2  1.0 KiB   0.3 ms  (2 others)`},
		{GroupOptions{By: "path", Value: 1, Rows: 4}, `
requests    bytes  latency  path
       1  4.0 KiB   0.9 ms  /a
     200  2.0 KiB   2.0 ms  /b\n
       1  0.5 KiB   0.1 ms  /c
       1  0.5 KiB   0.2 ms  /d`},
	} {
		if got := "\n" + strings.Join(Groups(types, groups, test.o), "\n"); got != test.want {
			t.Errorf("%+v: got%s\nwant%s", test.o, got, test.want)
		}
	}
	short := []Group{{"/a", []int64{1, 0, 999_999}}, {"/b", []int64{1, 0, 100}}}
	if got, want := Groups(types, short, GroupOptions{By: "file", Value: 2, Rows: 2})[2], "0.1 µs"; !strings.Contains(got, want) {
		t.Errorf("short times: got %q, want %q", got, want)
	}
	mixed := []Group{{"/a", []int64{1, 0, 999_999_999}}, {"/b", []int64{1, 0, 12_345}}}
	if got, want := Groups(types, mixed, GroupOptions{By: "file", Value: 2, Rows: 2})[2], " 0.012 ms"; !strings.Contains(got, want) {
		t.Errorf("short and long times: got %q, want %q", got, want)
	}
	if groups[0].Name != "/a" || len(groups) != 4 {
		t.Errorf("got modified input %+v, want it unchanged", groups)
	}
	if got := Groups(types, nil, GroupOptions{}); got != nil {
		t.Errorf("no groups: got %q, want nil", got)
	}
}
