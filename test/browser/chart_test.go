package browser

import (
	"net/url"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/timeline"
)

// twoThreads returns a recording of 3 s. Thread tar parses, sorts, reads and parses again;
// thread worker works in the first 100 ms.
func twoThreads(t *testing.T) *profile.Timeline {
	t.Helper()
	const start, ms = int64(5_000_000_000), int64(time.Millisecond)
	b := profile.NewBuilder()
	module := b.Mapping(profile.Mapping{Path: "/usr/bin/tar"})
	stack := func(names ...string) (s profile.StackID) {
		for _, name := range names {
			s = b.Push(s, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name}), Mapping: module}))
		}
		return s
	}
	parse, sorting, read, again := stack("main", "by_a", "parse"), stack("main", "by_b", "sort"), stack("main", "by_c", "read"), stack("main", "by_d", "parse")
	work := stack("work")
	r, err := timeline.NewRecorder(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	process := r.Process(42, start)
	r.NameProcess(process, start, "tar")
	main, worker := r.Thread(process, 42, start), r.Thread(process, 43, start)
	r.NameThread(main, start, "tar")
	r.NameThread(worker, start, "worker")
	sample := func(thread profile.ThreadID, s profile.StackID, from, end, weight int64) {
		for at := from; at < end; at += 10 {
			if err := r.AddOnCPU(thread, profile.OnCPU{Time: start + at*ms, Stack: s, Weight: weight * ms}); err != nil {
				t.Fatal(err)
			}
		}
	}
	sample(main, parse, 0, 1000, 10)
	sample(main, sorting, 1000, 2000, 10)
	if err := r.AddOffCPU(main, profile.OffCPU{Start: start + 2000*ms, Duration: 500 * ms, State: profile.StateSleeping, Stack: read}); err != nil {
		t.Fatal(err)
	}
	sample(main, again, 2600, 3000, 10) // nothing is known of the time before
	if err := r.AddFault(main, profile.Fault{Time: start + 2550*ms, Stack: read, Count: 5 * ms}); err != nil {
		t.Fatal(err)
	}
	sample(worker, work, 0, 100, 10)
	sample(worker, work, 200, 210, 5)
	p := b.Profile(profile.Meta{}, profile.Losses{})
	line, err := r.Timeline(p, start+3000*ms, func(s profile.StackID) profile.StackID { return s })
	if err != nil {
		t.Fatal(err)
	}
	line.Interval = 10 * ms
	return line
}

// The flame chart shows what a thread did in time. A box selects its time for all views;
// threads, filters and the address work as in the other views.
func TestFlameChart(t *testing.T) {
	line := twoThreads(t)
	c := newTab(t)
	openFlame(c, line.Profile, flame.Options{Times: line})
	const label = `document.querySelector("#chart").getAttribute("aria-label")`
	walk := func(keys string, want string) {
		t.Helper()
		c.press(keys)
		expect(c, announced, want)
	}
	c.press("o")
	c.until(label + ` === "Flame chart of thread tar 42/42"`)
	walk("ArrowUp", "all: 3.01 s from 0 s")
	walk("ArrowUp", "tar: 2.5 s from 0 s")
	walk("ArrowUp", "main: 2.5 s from 0 s")
	walk("ArrowUp", "by_a: 1 s from 0 s")
	walk("ArrowUp", "parse: 1 s from 0 s")
	walk("ArrowRight", "sort: 1 s from 1 s")
	walk("ArrowRight", "read: 500 ms from 2 s")
	walk("ArrowRight", "parse: 400 ms from 2.6 s")
	c.picture("flame-chart")
	c.press("ArrowLeft", "ArrowLeft", "Enter")
	expectList(c, "#chips span", "1 s to 2 s")
	walk("ArrowUp", "all: 1 s from 1 s")
	c.press("f")
	if got := c.downloads()("#save-folded"); got != "tar;main;by_b;sort 100\n" {
		t.Errorf("got samples %q in the second second, want only sort", got)
	}
	c.press("o", "Escape")
	c.until(`document.querySelector("#filters").hidden`)

	// The callees of a hidden function take its place.
	c.goTo("view=time&filter=hide%3A%5Eby_")
	c.until(`!document.querySelector("#filters").hidden`)
	expectList(c, "#chips span", "^by_ hidden")
	c.press("ArrowUp", "ArrowUp", "ArrowUp")
	walk("ArrowUp", "parse: 1 s from 0 s")
	walk("ArrowRight", "sort: 1 s from 1 s")
	walk("ArrowRight", "read: 500 ms from 2 s")
	walk("ArrowRight", "parse: 400 ms from 2.6 s")
	c.press("Escape", "U")
	c.until(`document.querySelector("#filters").hidden`)

	pick(c, "#thread", "42/43")
	c.until(label + ` === "Flame chart of thread worker 42/43"`)
	c.openAgain()
	c.until(`document.documentElement?.dataset.ready && ` + label + ` === "Flame chart of thread worker 42/43"`)
	c.press("ArrowUp", "ArrowUp")
	walk("ArrowUp", "work: 100 ms from 0 s")
	walk("ArrowRight", "work: 5 ms from 0.205 s")
	c.goTo(address(c) + "&time=2000-2500")
	expect(c, "#notice", "No events of this thread, in this time and with these filters.")
	for _, hash := range []string{"view=time&thread=x", "view=time&thread=1/1&zoom=a.b", "view=time&time=0-1e99&invert=1"} {
		c.goTo(hash)
		c.until(label + ` === "Flame chart of thread tar 42/42"`)
	}
	expectClean(c)
}

// The heat map shows the samples that pass the filters, with a search those that match,
// whatever part of the run is selected.
func TestHeatOfFilters(t *testing.T) {
	line := twoThreads(t)
	c := newTab(t)
	openFlame(c, line.Profile, flame.Options{Times: line})
	choose(c, "#value", "1") // CPU time
	var at struct{ Left, Top, Width, Height float64 }
	// check compares the CPU time in a step of each second.
	check := func(want ...string) {
		t.Helper()
		c.eval(`(({left, top, width, height}) => ({left, top, width, height}))(document.querySelector("#heat").getBoundingClientRect())`, &at)
		for second, text := range want {
			c.point(at.Left+(float64(second)+0.825)*at.Width/3.01, at.Top+1)
			expect(c, "#tip dl", "CPU time"+text)
		}
	}
	const run, rest = "10 ms", "0 ns"
	check(run, run, run)
	for filter, want := range map[string][]string{
		"focus:sort":                    {rest, run, rest},
		"ignore:sort":                   {run, rest, run},
		"hide:^by_\nfocus:by_|parse":    {run, rest, run},
		"hide:^by_\nignore:parse":       {rest, run, rest},
		"library:/usr/bin/tar\nfocus:x": {rest, rest, rest},
	} {
		for _, part := range []string{"", "&time=1000-2000"} {
			c.goTo("value=1&filter=" + url.QueryEscape(filter) + part)
			check(want...)
		}
	}
	c.goTo("value=1&q=by_d")
	c.until(`document.querySelector("#heat-note").textContent.includes("only stacks with a match")`)
	check(rest, rest, run)
	c.picture("heat-search")
	c.press("Escape")
	c.until(`!document.querySelector("#heat-note").textContent.includes("match")`)
	check(run, run, run)

	// The flame chart has the selected part of what passes the filters.
	c.goTo("view=time&time=500-1500&filter=" + url.QueryEscape("hide:^by_\nignore:sort"))
	c.press("ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp")
	expect(c, announced, "parse: 500 ms from 0.5 s")
	expectClean(c)
}

// A page without times has no flame chart.
func TestNoFlameChart(t *testing.T) {
	line := twoThreads(t)
	c := newTab(t)
	p := *line.Profile
	p.ValueTypes = []profile.ValueType{{Type: "samples", Unit: "count"}}
	openFlame(c, &p, flame.Options{})
	c.press("o")
	c.goTo("view=time")
	c.until(`document.body.dataset.view === "flame" && document.querySelector("#views [value=time]").hidden`)
	expectClean(c)
}
