package browser

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/report"
)

// pythonProgram returns a profile of a Python program, whose functions own the time of the interpreter,
// of libc and of the kernel, but not of zlib.
func pythonProgram() *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	frame := func(name, path string, kind profile.Kind) profile.FrameID {
		fn := profile.Function{Name: name, SystemName: name}
		if path == "[python]" {
			fn.File, fn.StartLine = "/srv/app.py", 1
		}
		return b.Frame(profile.Frame{Function: b.Function(fn), Mapping: b.Mapping(profile.Mapping{Path: path}), Kind: kind})
	}
	eval := frame("_PyEval_EvalFrameDefault", "/usr/bin/python3.11", profile.KindUser)
	long := frame("x_add", "/usr/bin/python3.11", profile.KindUser)
	copies := frame("memcpy", "/lib/x86_64-linux-gnu/libc.so.6", profile.KindUser)
	write := frame("vfs_write", profile.KernelPath, profile.KindKernel)
	deflate := frame("deflate", "/lib/x86_64-linux-gnu/libz.so.1", profile.KindUser)
	serve := frame("serve", "[python]", profile.KindJIT)
	parse := frame("parse", "[python]", profile.KindJIT)
	task := b.Task(profile.Task{PID: 7, Comm: "app"})
	for _, s := range []struct {
		value  int64
		frames []profile.FrameID
	}{
		{40, []profile.FrameID{eval, serve, eval, parse, eval, long}},
		{20, []profile.FrameID{eval, serve, eval, parse, eval}},
		{15, []profile.FrameID{eval, serve, eval, copies}},
		{10, []profile.FrameID{eval, serve, eval, copies, write}},
		{9, []profile.FrameID{eval, serve, eval, deflate}},
		{6, []profile.FrameID{eval}},
	} {
		var at profile.StackID
		for _, f := range s.frames {
			at = b.Push(at, f)
		}
		b.Add(profile.Sample{Stack: at, Task: task, CPU: -1, Values: []int64{s.value, s.value * 1e7}})
	}
	return b.Profile(profile.Meta{Command: "app", Scope: "pid 7", Duration: 10e9, CPUs: 2}, profile.Losses{})
}

// The table and the list of functions have the self values of the terminal, with and without native
// detail.
func TestNative(t *testing.T) {
	p := pythonProgram()
	for _, first := range []bool{false, true} {
		c := newTab(t)
		openFlame(c, p, flame.Options{Native: first})
		for _, native := range []bool{first, !first} {
			var want []string
			for _, f := range text.HottestOf(p, 20, 0, native).Functions {
				want = append(want, fmt.Sprintf("%s %d", f.Name, f.Self))
			}
			var got []string
			c.press("t")
			c.eval(`[...document.querySelectorAll("#rows tr")].map((row) => [row.cells[2].textContent, row.cells[0].firstChild.data]).filter(([, self]) => self !== "0").map((row) => row.join(" "))`, &got)
			if !slices.Equal(got, want) {
				t.Errorf("native %v: the table has %q, the terminal %q", native, got, want)
			}
			heading := map[bool]string{false: "Own", true: "Self"}[native]
			expect(c, "#table [data-column=self] button", heading)
			c.press("f")
			c.eval(`[...document.querySelectorAll("#details li:has(meter)")].map((item) => item.querySelector(".name").textContent + " " + item.title)`, &got)
			if !slices.Equal(got, want) {
				t.Errorf("native %v: the list has %q, the terminal %q", native, got, want)
			}
			if native == first {
				c.press("d")
			}
		}
		c.clickOn("#native")
		c.press("t")
		expect(c, "#table [data-column=self] button", map[bool]string{false: "Own", true: "Self"}[first])
		expectClean(c)
	}
	c := newTab(t)
	openFlame(c, manyStacks(20), flame.Options{})
	c.press("d") // without functions of languages, there is nothing to choose
	var hidden bool
	c.eval(`document.querySelector("#native-choice").hidden && location.hash === ""`, &hidden)
	if !hidden {
		t.Error("a profile without functions of interpreted languages has the switch")
	}
}

// A page with times has the findings of a report of that page.
func TestFindingsOfTimes(t *testing.T) {
	c := newTab(t)
	line := twoThreads(t)
	var page bytes.Buffer
	if err := flame.WriteHTML(&page, line.Profile, flame.Options{Times: line}); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, f := range report.Findings(readBack(t, page.Bytes()), 0, false) {
		want = append(want, f.Text)
	}
	openFlame(c, line.Profile, flame.Options{Times: line})
	c.eval(pageScript(c)(`load().then(({ findings }) => findings.map(({ text }) => text))`), &got)
	if len(want) < 2 || !slices.Equal(got, want) {
		t.Errorf("the page says %q, a report of it %q", got, want)
	}
}

// A page opens without the waits of idle threads, as reports leave them out, and shows them on request.
func TestIdleThreads(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.OffCPUTime)
	module := b.Mapping(profile.Mapping{Path: "/srv/pool"})
	futex := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "[futex]"}), Kind: profile.KindMarker})
	disk := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "[disk read]"}), Kind: profile.KindMarker})
	wait := func(tid int, name string, note profile.FrameID, seconds int64) {
		f := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name}), Mapping: module})
		b.Add(profile.Sample{
			Stack: b.Push(b.Push(0, f), note), Task: b.Task(profile.Task{PID: 7, TID: tid, Comm: "pool"}),
			CPU: -1, Values: []int64{seconds, seconds * 1e9},
		})
	}
	wait(8, "idle", futex, 10)
	wait(9, "idle", futex, 10)
	wait(7, "load", disk, 4)
	wait(7, "take", futex, 1)
	p := b.Profile(profile.Meta{Command: "pool", Duration: 10e9}, profile.Losses{})
	c := newTab(t)
	openFlame(c, p, flame.Options{Value: 1})
	list := func() (got []string) {
		c.eval(`[...document.querySelectorAll("#details li:has(meter)")].map((item) => item.querySelector(".name").textContent + " " + item.querySelector(".share").textContent)`, &got)
		return got
	}
	var want []string
	for _, g := range report.New(p, 1, 20, false).Programs {
		want = append(want, fmt.Sprintf("%s %.1f%%", g.Name, 100*g.Inner))
	}
	if got := list(); len(want) != 2 || len(got) < 2 || !slices.Equal(got[:2], want) {
		t.Errorf("the page lists %q, a report %q", got, want)
	}
	expect(c, "#chips li span", "without idle threads")
	expect(c, "#share", "20.0% of all")
	expect(c, ".findings h3", "Findings")
	c.clickOn("#chips button")
	if got := list(); len(got) < 2 || got[0] != "idle 80.0%" {
		t.Errorf("with idle threads, the page lists %q, want idle first", got)
	}
	expect(c, ".findings h3", "Findings by off-CPU time, of all samples")
	c.openAgain() // the address has the choice
	c.until(`document.documentElement?.dataset.ready`)
	if got := list(); len(got) < 2 || got[0] != "idle 80.0%" {
		t.Errorf("opened again, the page lists %q, want idle first", got)
	}
	c.eval(`((menu) => { menu.value = "idle"; menu.dispatchEvent(new Event("change")); return 0; })(document.querySelector("#filter"))`, new(int))
	expect(c, "#chips li span", "without idle threads")
	c.goTo("filter=hide:load") // with other filters, in all views
	expect(c, "#share", "20.0% of all")
	expectClean(c)
}

// In a window of 1280 pixels, the tools of all views are in one row.
func TestToolsRow(t *testing.T) {
	c, _ := newChromiumTab(t)
	line := twoThreads(t)
	openFlame(c, line.Profile, flame.Options{Times: line, Listings: "code", Title: strings.Repeat("fulgur record -o recording.html ", 9)})
	for _, view := range []string{"", "view=time"} {
		c.goTo(view)
		var height float64
		c.eval(`document.querySelector("header").clientHeight`, &height)
		if height > 40 {
			t.Errorf("%q: the row of tools is %v pixels high, want one row", view, height)
		}
	}
}

// The panel has the findings of a report, more than three of them folded.
func TestFindings(t *testing.T) {
	c := newTab(t)
	p := pythonProgram()
	openFlame(c, p, flame.Options{})
	var want, got []string
	for _, f := range report.Findings(p, 0, false) {
		text := f.Text
		if f.Remedy != "" {
			text += " Remedy: " + f.Remedy + "."
		}
		want = append(want, text)
	}
	if len(want) < 4 {
		t.Fatalf("the profile has only the findings %q", want)
	}
	shown := func() (list []string) {
		c.eval(`[...document.querySelectorAll(".findings li")].filter((item) => item.checkVisibility()).map((item) => item.textContent)`, &list)
		return list
	}
	if got = shown(); !slices.Equal(got, want[:3]) {
		t.Errorf("the panel shows %q, want %q", got, want[:3])
	}
	c.clickOn(".findings summary")
	if got = shown(); !slices.Equal(got, want) {
		t.Errorf("unfolded, the panel shows %q, want %q", got, want)
	}
	c.click(boxAt(c, 0.2, 3))
	if got = shown(); len(got) > 0 {
		t.Errorf("the panel of a box has findings: %q", got)
	}
	c.press("Escape", "Escape") // the selection, the zoom
	if got = shown(); !slices.Equal(got, want) {
		t.Errorf("afterwards, the panel shows %q, want all again, %q", got, want)
	}
	expect(c, ".findings h3", "Findings")
	c.goTo("filter=focus:parse") // what they are about is no longer what is shown
	expect(c, ".findings h3", "Findings by samples, of all samples")
	c.goTo("value=1")
	expect(c, ".findings h3", "Findings by samples, of all samples")
	expectClean(c)
}
