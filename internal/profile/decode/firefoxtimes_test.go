package decode

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile/encode/flame"
)

// waitsProfile returns a Firefox profile of a thread with waits. Its stacks are f and, on top
// of it, a note for each of reasons.
func waitsProfile(reasons ...string) []byte {
	texts, rows, addresses, columns, prefixes := `"f"`, "0", "-1", "null", "null"
	for i, r := range reasons {
		texts += fmt.Sprintf(`,"[off-CPU: %s]"`, r)
		rows += fmt.Sprintf(",%d", i+1)
		addresses, columns, prefixes = addresses+",-1", columns+",0", prefixes+",0"
	}
	return fmt.Appendf(nil, `{"meta":{"preprocessedProfileVersion":70,"interval":1,"fulgurRun":"{}","categories":[{"name":"Idle"}]},"shared":{"stringArray":[%[1]s],
		"funcTable":{"name":[%[2]s]},"frameTable":{"address":[%[3]s],"lib":[%[3]s],"func":[%[2]s],"category":[%[4]s],"line":[%[4]s],"inlineDepth":[%[2]s]},
		"stackTable":{"frame":[%[2]s],"prefix":[%[5]s]}},
		"threads":[{"name":"t","pid":"1","tid":1,"samples":{"weightType":"tracing-ms","weight":[1,2],"stack":[0,1],"time":[1,3]}}]}`,
		texts, rows, addresses, columns, prefixes)
}

// If a stack waits for different reasons, the first one counts.
func TestFirstReason(t *testing.T) {
	data := waitsProfile("futex", "disk read", "pipe read", "epoll")
	for range 20 {
		d, line := withTimes(t, data)
		waits := 0
		for e, err := range line.Events.OffCPU(0) {
			if err != nil {
				t.Fatal(err)
			}
			waits++
			if name := d.Profile.FrameName(d.Profile.Stacks[e.Stack].Frame); name != "f" || line.Reasons[e.Stack] != "futex" || len(line.Reasons) != 1 {
				t.Fatalf("got a wait in %s for %v, want one in f for futex", name, line.Reasons)
			}
		}
		if waits != 1 {
			t.Fatalf("got %d waits, want 1", waits)
		}
	}
}

// A page with times has the values of a profile, in whatever order they are.
func TestValuesWithTimes(t *testing.T) {
	d, line := withTimes(t, []byte(`{"meta":{"preprocessedProfileVersion":70,"interval":1},"shared":{"stringArray":["f"],"funcTable":{"name":[0]},
		"frameTable":{"address":[-1],"lib":[-1],"func":[0],"category":[null],"line":[null],"inlineDepth":[0]},"stackTable":{"frame":[0],"prefix":[null]}},
		"threads":[{"name":"I/O","pid":"1","tid":"1-io","samples":{"weightType":"bytes","weight":[5],"stack":[0],"time":[2]}},
		{"name":"t","pid":"1","tid":1,"samples":{"weightType":"samples","weight":[1,1,1],"stack":[0,0,0],"time":[1,2,3]}}]}`))
	page := encoded(t, func(w io.Writer) error { return flame.WriteHTML(w, d.Profile, flame.Options{Times: line}) })
	p, _, err := Read(t.Context(), bytes.NewReader(page), "page")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(totals(d.Profile), totals(p)); diff != "" {
		t.Errorf("values (-profile +page):\n%s", diff)
	}
}

// Without an interval in the file, a sample that is not time represents the median distance of
// samples.
func TestUnknownInterval(t *testing.T) {
	for times, want := range map[string]int64{"1,3,5,7,1000": 2e6, "1,1,1,1,1": 1e6} {
		_, line := withTimes(t, fmt.Appendf(nil, `{"meta":{"preprocessedProfileVersion":70},"shared":{"stringArray":["f"],"funcTable":{"name":[0]},
			"frameTable":{"address":[-1],"lib":[-1],"func":[0],"category":[null],"line":[null],"inlineDepth":[0]},"stackTable":{"frame":[0],"prefix":[null]}},
			"threads":[{"name":"t","pid":"1","tid":1,"samples":{"weightType":"samples","stack":[0,0,0,0,0],"time":[%s]}}]}`, times))
		if line.Interval != want {
			t.Errorf("samples at %s ms: got an interval of %d ns, want %d", times, line.Interval, want)
		}
		for e, err := range line.Events.OnCPU(0) {
			if err != nil || e.Weight != want || e.Amount != 1 {
				t.Errorf("samples at %s ms: got %+v, %v; want a weight of %d", times, e, err, want)
			}
		}
	}
}

// countingContext counts how often it is asked whether it is done.
type countingContext struct {
	context.Context
	asked int
}

func (c *countingContext) Err() error {
	c.asked++
	return c.Context.Err()
}

// Each thousand rows, whose names may be long, are read only if the context is not done.
func TestFirefoxHeedsContext(t *testing.T) {
	const rows = 8 << 10
	zeros := strings.Repeat(",0", rows-1)
	text := `{"meta":{"preprocessedProfileVersion":50},"threads":[{"stringArray":["f"],"funcTable":{"name":[0],"resource":[-1]},` +
		`"frameTable":{"func":[0],"category":[null],"address":[-1],"line":[null]},"stackTable":{"frame":[0` + zeros + `],"prefix":[null` + strings.Repeat(",null", rows-1) + `]},` +
		`"samples":{"stack":[0` + zeros + `]}}]}`
	ctx := &countingContext{Context: t.Context()}
	if _, err := readFirefox(ctx, bufio.NewReader(strings.NewReader(text)), false); err != nil {
		t.Fatal(err)
	}
	if want := 2 * rows >> 10; ctx.asked < want {
		t.Errorf("asked the context %d times for %d rows and as many samples, want at least %d", ctx.asked, rows, want)
	}
}
