package browser

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// These tests try what users have reported of other flame graph pages, and name the report.

// Ctrl-C copies the name of the selected box, unless text is selected
// (firefox-devtools/profiler#3695).
func TestCtrlC(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	copied := func() (text string) {
		c.eval(`((value) => {
			const event = new Event("copy", { bubbles: true, cancelable: true });
			document.activeElement.dispatchEvent(Object.defineProperty(event, "clipboardData", { value }));
			return value.getData("text/plain");
		})(new DataTransfer())`, &text)
		return text
	}
	if got := copied(); got != "" {
		t.Errorf("without a selection, Ctrl-C copies %q, want what the browser does", got)
	}
	c.press("ArrowUp", "ArrowUp", "ArrowUp")
	want := c.text("#details h2")
	if got := copied(); got != want || got == "" {
		t.Errorf("Ctrl-C copies %q, want the selected %q", got, want)
	}
	if chromium, ok := c.driver.(*devtools); ok { // the key itself
		expect(c, "#hint", "Copied the name.")
		c.eval(`(document.querySelector("#hint").textContent = "", 0)`, new(int))
		chromium.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "modifiers": 2, "key": "c", "windowsVirtualKeyCode": 'C', "commands": []string{"copy"}}, nil)
		expect(c, "#hint", "Copied the name.")
	}
	c.eval(`(getSelection().selectAllChildren(document.querySelector("#summary")), 0)`, new(int))
	if got := copied(); got != "" {
		t.Errorf("with selected text, Ctrl-C copies %q, want what the browser does", got)
	}
	c.press("t")
	if got := copied(); got != "" {
		t.Errorf("in the table, Ctrl-C copies %q, want what the browser does", got)
	}
}

// Ctrl-F goes to the page's search, since browsers find no text on a canvas. A second time, and where
// there is text, it is the browser's.
func TestCtrlF(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	for _, step := range []struct {
		view string
		want bool
	}{{"f", true}, {"", false}, {"t", false}, {"b", true}} {
		if step.view != "" {
			c.press("Escape", step.view)
		}
		var handled bool
		c.eval(`!document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "f", ctrlKey: true, bubbles: true, cancelable: true }))`, &handled)
		if handled != step.want {
			t.Errorf("view %q: the page handles Ctrl-F: %v, want %v", step.view, handled, step.want)
		}
		var isSearch bool
		if c.eval(`document.activeElement.id === "search"`, &isSearch); step.want && !isSearch {
			t.Errorf("view %q: Ctrl-F does not go to the search", step.view)
		}
	}
	expectClean(c)
}

// deepStack returns a profile of a stack with n functions.
func deepStack(n int) *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	var at profile.StackID
	for i := range n {
		at = b.Push(at, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: fmt.Sprintf("level%d", i)})}))
	}
	b.Add(profile.Sample{Stack: at, Task: b.Task(profile.Task{PID: 1, Comm: "deep"}), CPU: -1, Values: []int64{1}})
	return b.Profile(profile.Meta{Command: "deep"}, profile.Losses{})
}

// In graphs of thousands of rows, the tooltip is that of the box under the pointer, and boxes have
// names (grafana/pyroscope#1527).
func TestDeepStack(t *testing.T) {
	c := newTab(t)
	openFlame(c, deepStack(5000), flame.Options{})
	c.eval(`new Promise((done) => {
		const host = document.querySelector("#scroller");
		host.scrollTop = host.scrollHeight;
		requestAnimationFrame(() => setTimeout(done, 0, 0));
	})`, new(int))
	var bottom float64
	c.eval(`document.querySelector("#scroller").getBoundingClientRect().bottom`, &bottom)
	for row := range 5 {
		c.point(300, bottom-20-18*float64(row))
		expect(c, "#tip h2", fmt.Sprintf("level%d", 4999-row))
	}
	c.press("/")
	c.write("level2500$")
	c.press("Enter")
	expect(c, "#details h2", "level2500")
	expectClean(c)
}

// Values near the largest numbers are drawn, beside tiny ones (parca-dev/parca#3363).
func TestLargestValues(t *testing.T) {
	c := newTab(t)
	b := profile.NewBuilder(profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	task := b.Task(profile.Task{PID: 1, Comm: "large"})
	for name, value := range map[string]int64{"most": math.MaxInt64 / 2, "half": math.MaxInt64 / 4, "tiny": 1} {
		f := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})})
		b.Add(profile.Sample{Stack: b.Push(0, f), Task: task, CPU: -1, Values: []int64{value}})
	}
	openFlame(c, b.Profile(profile.Meta{Command: "large"}, profile.Losses{}), flame.Options{})
	for share, name := range map[float64]string{0.3: "most", 0.8: "half"} {
		c.point(boxAt(c, share, 2))
		expect(c, "#tip h2", name)
	}
	expect(c, "#details li:nth-child(2) .name", "half")
	expect(c, "#details li:nth-child(2) .share", "33.3%")
	expectClean(c)
}

// Another function in the sandwich begins at the function itself, however far the one before was
// scrolled (jlfwong/speedscope#150).
func TestSandwichScroll(t *testing.T) {
	c := newTab(t)
	openFlame(c, deepStack(300), flame.Options{})
	c.press("/")
	c.write("level299$")
	c.press("Enter", "s")
	scrolled := func(move string) (fromEnd float64) {
		c.eval(fmt.Sprintf(`new Promise((done) => {
			const host = document.querySelector("#callers");
			%s
			requestAnimationFrame(() => setTimeout(() => done(host.scrollHeight - host.clientHeight - host.scrollTop), 0));
		})`, move), &fromEnd)
		return fromEnd
	}
	if got := scrolled("host.scrollTop = 0;"); got < 1000 {
		t.Fatalf("the callers scroll by %v pixels, want more than 1000", got)
	}
	c.eval(`(document.querySelector("#details ol button").click(), 0)`, new(int))
	expect(c, "#of", "level298")
	if got := scrolled(""); got > 1 {
		t.Errorf("the callers of another function are %v pixels above the function", got)
	}
}

// A range of time from right to left is the same part of the run, and an impossible one in the address is
// the whole run (Netflix/flamescope#10).
func TestReversedRange(t *testing.T) {
	c := newTab(t)
	line := twoThreads(t)
	openFlame(c, line.Profile, flame.Options{Times: line})
	drag := func(from, to float64) string {
		var box struct{ Left, Top, Width, Height float64 }
		c.eval(`(({ left, top, width }) => ({ Left: left, Top: top, Width: width }))(document.querySelector("#heat").getBoundingClientRect())`, &box)
		at := func(share float64) (x, y float64) { return box.Left + share*box.Width, box.Top + 3 }
		x, y := at(from)
		c.point(x, y)
		c.pointer(press, x, y)
		x, y = at(to)
		c.point(x, y)
		c.pointer(release, x, y)
		var hash string
		c.eval(`new URLSearchParams(location.hash.slice(1)).get("time") ?? ""`, &hash)
		return hash
	}
	right := drag(0.3, 0.6)
	c.press("Escape")
	c.goTo("")
	if left := drag(0.6, 0.3); left != right || !strings.Contains(left, "-") {
		t.Errorf("dragged to the left, the range is %q, to the right %q", left, right)
	}
	for _, time := range []string{"1500-500", "9-9", "-5", "x", "1e9-2e9"} {
		c.goTo("time=" + time)
		var shown bool
		if c.eval(`document.querySelector("#notice").hidden && document.querySelector("#filters").hidden`, &shown); !shown {
			t.Errorf("time=%s: the page does not show the whole run", time)
		}
	}
	expectClean(c)
}
