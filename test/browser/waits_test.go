package browser

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// A page of waits or requests lists the innermost functions of the program, the files and
// the reasons, rather than notes alone.
func TestHottestOfWaits(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"})
	server := b.Mapping(profile.Mapping{Path: "/usr/bin/server"})
	libc := b.Mapping(profile.Mapping{Path: "/usr/lib/libc.so.6"})
	kernel := b.Mapping(profile.Mapping{Path: "[kernel.kallsyms]"})
	frame := func(name string, m profile.MappingID, kind profile.Kind) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name}), Mapping: m, Kind: kind})
	}
	add := func(value int64, frames ...profile.FrameID) {
		var s profile.StackID
		for _, f := range frames {
			s = b.Push(s, f)
		}
		b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: "server"}), CPU: -1, Values: []int64{value}})
	}
	start := frame("__libc_start_call_main", libc, profile.KindUser)
	worker := frame("worker_loop", server, profile.KindUser)
	load := frame("load", server, profile.KindUser)
	wait := frame("pthread_cond_wait", libc, profile.KindUser)
	read := frame("read", libc, profile.KindUser)
	schedule := frame("schedule", kernel, profile.KindKernel)
	futex := frame("[futex]", 0, profile.KindMarker)
	file := frame("[/srv/<b>data</b>]", 0, profile.KindMarker)
	disk := frame("[vda read]", 0, profile.KindMarker)
	add(70, start, worker, wait, schedule, futex)
	add(20, start, worker, load, read, schedule, file, disk)
	add(6, start, wait, schedule, futex)
	// A waker is on top of the wait that it ended, upside down.
	wokenBy, waker := frame(profile.WokenBy, 0, profile.KindMarker), frame("client-7", 0, profile.KindMarker)
	add(3, schedule, futex, wokenBy, schedule, load, start, waker)
	add(1, schedule, futex, wokenBy, load, start, waker)

	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	expectList(c, "#details h3", "Findings", "Hottest functions of programs", "Files", "Reasons")
	expectList(c, "#details ol li", "worker_loopserver70.0%", "loadserver20.0%", "pthread_cond_waitlibc.so.66.00%", "schedule[kernel.kallsyms]4.00%",
		"[/srv/<b>data</b>]20.0%", "[futex]80.0%", "[vda read]20.0%")
	c.picture("waits")
	c.clickOn("#details li:first-child button")
	expect(c, "#of", "worker_loop")
	expectClean(c)
}

// Code without functions is one entry per module in the list of functions. It searches for
// all of it.
func TestHottestWithoutNames(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	codec, other := b.Mapping(profile.Mapping{Path: "/usr/lib/libx264.so.164"}), b.Mapping(profile.Mapping{Path: "/usr/lib/libz.so.1"})
	add := func(value int64, f profile.Frame) {
		b.Add(profile.Sample{Stack: b.Push(0, b.Frame(f)), Task: b.Task(profile.Task{PID: 1, Comm: "ffmpeg"}), CPU: -1, Values: []int64{value}})
	}
	for i := range uint64(30) {
		add(2, profile.Frame{Mapping: codec, Address: 0x1000 + 16*i})
	}
	add(10, profile.Frame{Mapping: other, Address: 0x1000})
	add(5, profile.Frame{Mapping: codec, Function: b.Function(profile.Function{Name: "libx264.so.164+0x900"})})
	add(25, profile.Frame{Mapping: codec, Function: b.Function(profile.Function{Name: "encode"})})

	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	expectList(c, "#details ol li", "[no name]libx264.so.16460.0%", "encode25.0%", "[no name]libz.so.110.0%", "libx264.so.164+0x9005.00%")
	c.clickOn("#details li:first-child button")
	c.until(`new URLSearchParams(location.hash.slice(1)).get("q") === "^\\[libx264\\.so\\.164\\+0x"`)
	expectContains(c, "#matched", "60.0%")
	expectClean(c)
}

// painted returns how many pixels of a canvas have the color that a variable of the style
// sheet names, or, if it is empty, are not transparent, within a row of boxes.
func painted(c *tab, canvas, color string, depth int) (pixels int) {
	c.t.Helper()
	c.eval(fmt.Sprintf(`new Promise((done) => requestAnimationFrame(() => setTimeout(() => {
		const canvas = document.querySelector(%q);
		const copy = document.createElement("canvas");
		copy.width = canvas.width;
		copy.height = 1;
		const probe = copy.getContext("2d", { willReadFrequently: true });
		const i = document.createElement("i");
		document.body.append(i);
		i.style.color = "var(--%s)";
		probe.fillStyle = getComputedStyle(i).color;
		i.remove();
		probe.fillRect(0, 0, 1, 1);
		const want = probe.getImageData(0, 0, 1, 1).data;
		probe.clearRect(0, 0, 1, 1);
		probe.drawImage(canvas, 0, %d - canvas.height);
		const row = probe.getImageData(0, 0, copy.width, 1).data;
		let count = 0;
		for (let x = 0; x < row.length; x += 4) {
			if (%q === "" ? row[x + 3] > 0 : [0, 1, 2].every((b) => Math.abs(row[x + b] - want[b]) < 3)) count++;
		}
		done(count);
	})))`, canvas, color, edge+depth*rowHeight+3, color), &pixels)
	return pixels
}

// A search hit in a box too narrow to draw is tinted, also if it is above or below that.
func TestNarrowHits(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	push := func(n int64, names ...string) {
		var s profile.StackID
		for _, name := range names {
			s = b.Push(s, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})}))
		}
		b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: "x"}), CPU: -1, Values: []int64{n}})
	}
	push(1_000_000, "main", "wide")
	push(1, "main", "narrow", "deep", "needle")
	push(1, "main", "other")
	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	// The rows are all, x, main, and wide with narrow.
	for query, want := range map[string]int{"^needle$": 1, "^narrow$": 1, "^nothing$": 0} {
		c.press("/")
		c.write(query)
		if got := painted(c, "#chart", "match", 3); got != want {
			t.Errorf("%s: %d pixels are tinted, want %d", query, got, want)
		}
		c.press("Escape")
	}
	c.press("b", "/")
	c.write("^deep$") // a caller of needle
	if got := painted(c, "#chart", "match", 1); got != 1 {
		t.Errorf("callers: %d pixels are tinted, want 1", got)
	}
	c.press("Escape")
	if got := painted(c, "#chart", "match", 1); got != 0 {
		t.Errorf("%d pixels are tinted without a search", got)
	}

	// The keys reach them all, and zoom to those that are too narrow to see.
	c.press("f", "/")
	c.write("^(main|narrow|needle|other)$")
	c.until(`document.querySelector("#hits").textContent === "4 hits"`)
	c.press("Enter")
	expect(c, announced, "main: 1,000,002 samples, 100%")
	expect(c, "#path", "all")
	c.press("n")
	expect(c, announced, "narrow: 1 sample, 0.00%")
	expect(c, "#path", "all›x›main›narrow 0.00%")
	c.press("n")
	expect(c, announced, "other: 1 sample, 0.00%")
	expect(c, "#path", "all›x›main›other 0.00%")
	c.press("n")
	expect(c, announced, "needle: 1 sample, 0.00%")
	expect(c, "#path", "all›x›main›narrow 0.00%")
	expect(c, "#hits", "4 of 4")
	c.press("N", "N", "N", "N")
	expect(c, announced, "needle: 1 sample, 0.00%")
	c.clickOn("#next")
	expect(c, announced, "main: 1,000,002 samples, 100%")
	c.picture("narrow-hit")
	c.press("Escape", "Escape", "Escape", "b", "/")
	c.write("^deep$")
	c.press("Enter")
	expect(c, announced, "deep: 1 sample, 0.00%")
	expect(c, "#path", "all›needle 0.00%")
	c.press("Escape", "Escape", "Escape", "/") // search, selection, zoom
	c.write("^deep$")
	if got := painted(c, "#chart", "match", 1); got != 1 {
		t.Errorf("callers: %d pixels are tinted after a hit was shown, want 1", got)
	}
	expectClean(c)
}

// When typing pauses, the graph scrolls to a hit, unless one is visible.
func TestScrollToHit(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	var s profile.StackID
	for i := range 100 {
		s = b.Push(s, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: fmt.Sprintf("f%d", i)})}))
		n := int64(1)
		if i == 80 {
			n = 1_000_000 // the rest is too narrow to draw
		}
		b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: "x"}), CPU: -1, Values: []int64{n}})
	}
	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	c.goTo("invert=0")
	scrolled := func() (top float64) {
		c.eval(`document.querySelector("#scroller").scrollTop`, &top)
		return top
	}
	home := scrolled()
	for query, depth := range map[string]int{"^f70$": 72, "^f90$": 83, "^f2$": 4} {
		c.press("/")
		c.write(query)
		c.until(`document.querySelector("#hits").textContent === "1 hit"`)
		var top, height float64
		c.eval(`document.querySelector("#scroller").clientHeight`, &height)
		c.eval(`document.querySelector("#chart").parentElement.clientHeight`, &top)
		// The distance of the row from the upper edge of the visible part.
		at := top - edge - float64(depth+1)*rowHeight - scrolled()
		if at < 0 || at+rowHeight > height {
			t.Errorf("%s is %v pixels below the upper edge, want it visible", query, at)
		}
		if query == "^f2$" && scrolled() != home {
			t.Errorf("the graph scrolled from %v to %v for a visible hit", home, scrolled())
		}
		c.press("Escape", "i", "i")
	}
	c.press("/")
	c.write("^f70$")
	c.openAgain()
	c.until(`document.querySelector("#hits")?.textContent === "1 hit"`)
	if scrolled() == home {
		t.Error("a page with a search in its address does not scroll to the hit")
	}
	c.picture("scrolled-hit")
	expectClean(c)
}

// The function under the pointer is highlighted wherever it occurs.
func TestHighlight(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	for _, comm := range []string{"a", "b"} {
		s := b.Push(b.Push(0, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "main" + comm})})),
			b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "shared"})}))
		b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: comm}), CPU: -1, Values: []int64{50}})
	}
	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	var width int
	c.eval(`document.querySelector("#chart").width`, &width)
	c.point(boxAt(c, 0.25, 3))
	expect(c, "#tip h2", "shared")
	if got := painted(c, "#scroller .marks", "", 3); got < width-10 {
		t.Errorf("%d of %d pixels of the row are highlighted, want nearly all", got, width)
	}
	c.picture("highlight")
	c.point(boxAt(c, 0.25, 2))
	expect(c, "#tip h2", "maina")
	if got := painted(c, "#scroller .marks", "", 2); got > width/2+10 {
		t.Errorf("%d of %d pixels of the row are highlighted, want half", got, width)
	}
	expectClean(c)
}

// The page of a recording does not add up CPU samples, waits and faults.
func TestRecordingFacts(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"},
		profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"})
	f := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "main"})})
	b.Add(profile.Sample{Stack: b.Push(0, f), Task: b.Task(profile.Task{PID: 1, Comm: "app"}), CPU: -1, Values: []int64{9, 3_000_000, 5_000_000}})
	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{Duration: time.Second}, profile.Losses{}), flame.Options{})
	if got := c.text("#facts"); got != "Duration1 s" {
		t.Errorf("got %q, want only the duration", got)
	}
	expectClean(c)
}

// The summary has the total of the chosen value with its name.
func TestSummary(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	expectContains(c, "#summary", "whole system · 100 samples in 10 s · ")
	choose(c, "#value", "1")
	expectContains(c, "#summary", "whole system · 1.01 s of CPU time in 10 s · ")
	openFlame(c, encodetest.Typical(), flame.Options{Value: 1, Base: encodetest.Typical()})
	expectContains(c, "#summary", "1.01 s of CPU time in 10 s · before: 1.01 s of CPU time in 10 s · ")
	var names []string
	c.eval(pageScript(c)(`["block-io bytes", "block-io-time nanoseconds", "softirq-time nanoseconds", "off-cpu nanoseconds", "block-ios count", "time nanoseconds"]
		.map((text) => text.split(" ")).map(([type, unit]) => valueName({ type, unit }))`), &names)
	if want := []string{"Disk request bytes", "Disk request time", "Softirq time", "Off-CPU time", "Block-ios", "Time"}; !slices.Equal(names, want) {
		t.Errorf("names of values = %q, want %q", names, want)
	}
	expectClean(c)
}
