package browser

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/sides"
)

// The page of slow intervals has the sentence that compares them with the others, and lists the slowest ones, more than
// three of them folded.
func TestSlowestIntervals(t *testing.T) {
	c := newTab(t)
	b := profile.NewBuilder(sides.Intervals, sides.SlowIntervals, sides.Others, sides.Slow)
	at := b.Push(0, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "handle"}), Mapping: b.Mapping(profile.Mapping{Path: "/bin/app"})}))
	b.Add(profile.Sample{Stack: at, Task: b.Task(profile.Task{PID: 42, Comm: "app"}), CPU: -1, Values: []int64{10, 2, 8e6, 100e6}})
	begin := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.Local)
	meta := profile.Meta{Value: sides.Slow.Type}
	var want []string
	for i := range 5 {
		length := time.Duration(50-i) * time.Millisecond
		s := profile.SlowInterval{Begin: begin, Length: length, Running: 10 * time.Millisecond, Runnable: 15 * time.Millisecond, Slow: true, PID: 42, TID: 43, Comm: "app"}
		text := fmt.Sprintf("%d ms, 03:04:05.006", 50-i) + fmt.Sprintf("10 ms running, 15 ms runnable, %d ms waiting", 25-i) + "app-42/43"
		if i == 1 {
			s.Fields = []profile.Label{{Key: "query", Value: "<b>SELECT</b>"}}
			text += "query = <b>SELECT</b>"
		}
		meta.Slowest, want = append(meta.Slowest, s), append(want, text)
	}
	p := b.Profile(meta, profile.Losses{})
	openFlame(c, p, flame.Compare(p, flame.Options{Value: 3}))
	shown := func(selector string) (list []string) {
		c.eval(`[...document.querySelectorAll("`+selector+`")].filter((item) => item.checkVisibility()).map((item) => item.textContent)`, &list)
		return list
	}
	if got := shown(".findings:not(.slowest) li"); len(got) != 1 || got[0] != "2 intervals of 10 were slow, and took 50.0 ms on average, 49.0 ms longer than the others: 49.0 ms running in handle." {
		t.Errorf("the panel shows the findings %q", got)
	}
	expect(c, ".slowest h3", "Slowest intervals")
	if got := shown(".slowest li"); !slices.Equal(got, want[:3]) {
		t.Errorf("the panel shows %q, want %q", got, want[:3])
	}
	c.clickOn(".slowest summary")
	if got := shown(".slowest li"); !slices.Equal(got, want) {
		t.Errorf("unfolded, the panel shows %q, want %q", got, want)
	}
	expectClean(c)
}
