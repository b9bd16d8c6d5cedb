package browser

import (
	"fmt"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// contextMenu opens the context menu at a point, or by the keyboard's key at the focus.
func contextMenu(c *tab, x, y float64, button int) {
	c.t.Helper()
	c.eval(fmt.Sprintf(`((at) => (at ?? document.activeElement).dispatchEvent(new MouseEvent("contextmenu", {
		bubbles: true, cancelable: true, clientX: %g, clientY: %g, button: %d,
	})))(%[3]d === 2 ? document.elementFromPoint(%[1]g, %[2]g) : null)`, x, y, button), new(bool))
}

const focused = `(document.activeElement.querySelector("span") ?? document.activeElement).textContent`

// The context menu of a box copies, filters and turns to other views, with the pointer and
// with keys, which do not reach the page meanwhile.
func TestContextMenu(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	x, y := boxAt(c, 0.2, 4)
	contextMenu(c, x, y, 2)
	expectList(c, "#menu button span", "Zoom", "Copy name", "Copy stack", "Sandwich", "Search", "Only with", "Without", "Hide", "Collapse library", "Only subtree")
	c.until(focused + ` === "Zoom"`)
	expect(c, "#details h2", "http::Server::handle(http::Request const&)")
	c.picture("context-menu")
	c.press("t", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowDown")
	c.until(focused + ` === "Sandwich" && document.body.dataset.view === "flame"`)
	c.press("Enter")
	c.until(`document.querySelector("#menu").hidden && document.body.dataset.view === "sandwich"`)
	expect(c, "#of", "http::Server::handle(http::Request const&)")
	c.press("f")

	contextMenu(c, x, y, 2)
	c.press("Escape")
	c.until(`document.querySelector("#menu").hidden && document.activeElement.id === "chart"`)
	c.press("ArrowUp") // to a callee; the menu key opens the menu of the selection
	contextMenu(c, 0, 0, 0)
	expect(c, "#menu button span", "Zoom")
	c.clickOn("#menu button:nth-of-type(6)")
	expectList(c, "#chips span", "only stacks with std::vector<int, std::allocator<int>> parse<int>(char const*)")
	c.press("U")

	// Nothing opens where there is no box, and a click elsewhere closes the menu.
	x2, y2 := boxAt(c, 0.2, 20)
	contextMenu(c, x2, y2, 2)
	c.until(`document.querySelector("#menu").hidden`)
	contextMenu(c, x, y, 2)
	c.until(`!document.querySelector("#menu").hidden`)
	c.click(x2, y2)
	c.until(`document.querySelector("#menu").hidden`)

	// The table has one, too.
	c.press("t")
	c.eval(`(document.querySelector("#rows tr:nth-child(2) button").dispatchEvent(new MouseEvent("contextmenu", { bubbles: true, cancelable: true, button: 2 })), 0)`, new(int))
	expectList(c, "#menu button span", "Copy name", "Sandwich", "Search", "Only with", "Without", "Hide", "Collapse library")
	c.clickOn("#menu button:nth-of-type(5)")
	expectList(c, "#chips span", "no stacks with http::Server::handle(http::Request const&)")
	expectClean(c)
}

// Names and stacks are copied whole, also if names are shown short: from the panel, by keys
// and from the menu. A stack begins with its innermost function in each view.
func TestCopy(t *testing.T) {
	c, chromium := newChromiumTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{ShortNames: true})
	chromium.call("Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite", "clipboardSanitizedWrite"}}, nil)
	chromium.call("Page.bringToFront", nil, nil)
	copied := func(want, hint string) {
		t.Helper()
		c.until(fmt.Sprintf(`document.querySelector("#hint").textContent === %q`, hint))
		var got string
		c.eval(`navigator.clipboard.readText()`, &got)
		if got != want {
			t.Errorf("copied %q, want %q", got, want)
		}
		c.eval(`navigator.clipboard.writeText("").then(() => 0)`, new(int))
		c.eval(`(document.querySelector("#hint").textContent = "", 0)`, new(int))
	}
	const handle = "http::Server::handle(http::Request const&)"
	const stack = handle + " (server)\nmain (server)\n__libc_start_call_main (libc.so.6)\nserver"
	c.press("y")
	expect(c, "#hint", "Select a function first.")
	c.click(boxAt(c, 0.2, 4))
	c.press("y")
	copied(handle, "Copied the name.")
	c.press("Y")
	copied(stack, "Copied the stack.")
	c.eval(`([...document.querySelectorAll("#details button")].find((b) => b.textContent === "Copy stack").id = "copying", 0)`, new(int))
	c.clickOn("#copying")
	copied(stack, "Copied the stack.")
	x, y := boxAt(c, 0.2, 4)
	contextMenu(c, x, y, 2)
	c.clickOn("#menu button:nth-of-type(3)")
	copied(stack, "Copied the stack.")
	c.press("Escape", "Escape", "b")
	c.click(boxAt(c, 0.1, 3)) // peek, parse, handle
	c.press("Y")
	copied("peek (server)\nstd::vector<int, std::allocator<int>> parse<int>(char const*) (server)\n"+handle+" (server)", "Copied the stack.")

	// Without a clipboard that scripts may write, as on a page from another machine.
	c.eval(`(navigator.clipboard.writeText = () => Promise.reject(new Error("no")), 0)`, new(int))
	c.press("y")
	c.until(`document.querySelector("#hint").textContent === "Copied the name."`)
	var got string
	if c.eval(`navigator.clipboard.readText()`, &got); got != handle {
		t.Errorf("copied %q without a clipboard for scripts, want %q", got, handle)
	}
	expectClean(c)
}

// deep returns a profile with a stack of n functions.
func deep(n int) *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	var s profile.StackID
	for i := range n {
		s = b.Push(s, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: fmt.Sprintf("f%d", i)})}))
	}
	b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: "deep"}), CPU: -1, Values: []int64{1}})
	return b.Profile(profile.Meta{}, profile.Losses{})
}

// A graph that is higher than the window hangs from its root, unless the user chooses.
func TestDirection(t *testing.T) {
	c := newTab(t)
	c.resize(1280, 720, 1)
	const hangs = `document.querySelector("#invert").checked`
	openFlame(c, deep(20), flame.Options{})
	c.until("!" + hangs)
	openFlame(c, deep(60), flame.Options{})
	c.until(hangs + ` && location.hash === ""`)
	c.point(boxAt(c, 0.5, 0))
	expect(c, "#tip h2", "all")
	// Zoom, filters and the window's height do not turn it over.
	c.press("/")
	c.write("f55")
	c.press("Enter", "Escape")
	c.press("F")
	c.goTo("filter=hide%3Af%5B1-5%5D")
	c.until(hangs + ` && !document.querySelector("#filters").hidden`)
	c.goTo("")
	c.press("i")
	c.until("!" + hangs + ` && location.hash === "#invert=0"`)
	c.openAgain()
	c.until(`document.documentElement?.dataset.ready && !` + hangs)
	c.press("i")
	c.until(hangs + ` && location.hash === ""`)
	expectClean(c)
}

// The heat map folds away to a row without times, which still selects. The address keeps it.
func TestFold(t *testing.T) {
	line := twoThreads(t)
	c := newTab(t)
	openFlame(c, line.Profile, flame.Options{Times: line})
	height := func() (n float64) {
		c.eval(`document.querySelector("#heat").getBoundingClientRect().height`, &n)
		return n
	}
	open := height()
	c.clickOn("#fold")
	c.until(`document.querySelector("#fold").ariaExpanded === "false"`)
	if folded := height(); folded > open/3 {
		t.Errorf("the map is %g pixels high, folded away %g", open, folded)
	}
	c.openAgain()
	c.until(`document.documentElement?.dataset.ready && document.querySelector("#fold").ariaExpanded === "false"`)
	var at struct{ Left, Top, Width float64 }
	c.eval(`(({left, top, width}) => ({left, top, width}))(document.querySelector("#heat").getBoundingClientRect())`, &at)
	c.click(at.Left+at.Width*1.01/3.01, at.Top+6)
	expectList(c, "#chips span", "1 s to 1.05 s")
	c.picture("folded")
	c.clickOn("#fold")
	c.until(`document.querySelector("#fold").ariaExpanded === "true"`)
	expectClean(c)
}

// A function without source, or without instructions, leaves the room to the other side.
func TestMissingSide(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{Listings: "code"})
	var width float64
	c.eval(pageScript(c)(`load().then((data) => {
		const listing = new Page({ ...data, listings: "" }).listing;
		document.body.dataset.view = "code";
		listing.fill([{ file: "/a.c", first: 0, lines: [], counts: [[1, 1, 1]], problem: "open /a.c: no such file or directory" }],
			[{ function: "main", module: "main", instructions: [{ address: "0x1130", text: "ret", self: 1, total: 1 }] }], "");
		return document.querySelector("#assembly").getBoundingClientRect().width;
	})`), &width)
	if width < 900 {
		t.Errorf("beside lines without text, the instructions are %v pixels wide, want more than two thirds of the page", width)
	}
	for _, test := range []struct{ name, sources, assembly, wide, narrow string }{
		{"no source", `[]`, `[{ function: "main", module: "main", instructions: [{ address: "0x1130", text: "ret", self: 1, total: 1 }] }]`, "#assembly", "#sources"},
		{"no instructions", `[{ file: "/a.c", first: 1, lines: ["int main;"], counts: [[1, 1, 1]] }]`, `[]`, "#sources", "#assembly"},
	} {
		var size struct{ Wide, Narrow, Height float64 }
		c.eval(pageScript(c)(fmt.Sprintf(`load().then((data) => {
			document.body.dataset.view = "code";
			new Page({ ...data, listings: "" }).listing.fill(%s, %s, "");
			document.body.dataset.view = "code";
			const box = (selector) => document.querySelector(selector).getBoundingClientRect();
			return { Wide: box(%q).width, Narrow: box(%q).height, Height: box(%q).height };
		})`, test.sources, test.assembly, test.wide, test.narrow, test.wide)), &size)
		if size.Wide < 1200 || size.Narrow > 50 || size.Height < 400 {
			t.Errorf("%s: %+v, want the other side as wide as the page, below a line that says so", test.name, size)
		}
		c.picture("missing-side")
	}
}
