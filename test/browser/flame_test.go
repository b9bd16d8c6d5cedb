package browser

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// rowHeight is the height of a row of boxes, and edge the space between the chart's edge
// and the outermost row, in CSS pixels.
const rowHeight, edge = 18, 5

// openFlame writes p as a page and opens it from the file system.
func openFlame(c *tab, p *profile.Profile, o flame.Options) {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "flame.html")
	file, err := os.Create(path)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := flame.WriteHTML(file, p, o); err != nil {
		c.t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.open("file://" + path)
	c.until(`document.documentElement?.dataset.ready`)
}

// boxAt returns the point of the page at a share of the chart's width, from 0 to 1, in
// the row at the given depth, 0 for the root.
func boxAt(c *tab, share float64, depth int) (x, y float64) {
	c.t.Helper()
	var hanging bool
	c.eval(`document.querySelector("#invert").checked
		|| document.body.dataset.view === "sandwich"`, &hanging)
	return boxIn(c, "#chart", hanging, share, depth)
}

// boxIn is like boxAt, for the chart that selector matches. Its callees hang below their
// callers, or stand on them.
func boxIn(c *tab, selector string, hanging bool, share float64, depth int) (x, y float64) {
	c.t.Helper()
	var chart struct{ Left, Top, Width, Height float64 }
	c.eval(fmt.Sprintf(`(({left, top, width, height}) => ({left, top, width, height}))(
		document.querySelector(%q).getBoundingClientRect())`, selector), &chart)
	x = chart.Left + share*chart.Width
	fromEdge := edge + (float64(depth)+0.5)*rowHeight
	if hanging {
		return x, chart.Top + fromEdge
	}
	return x, chart.Top + chart.Height - fromEdge
}

// choose selects a value of a select element, like a user with a keyboard.
func choose(c *tab, selector, value string) {
	c.t.Helper()
	var ok bool
	c.eval(fmt.Sprintf(`(() => {
		const select = document.querySelector(%q);
		select.value = %q;
		select.dispatchEvent(new Event("change"));
		return select.value === %[2]q;
	})()`, selector, value), &ok)
	if !ok {
		c.t.Fatalf("%s has no choice %q", selector, value)
	}
}

// pick chooses a value in a picker.
func pick(c *tab, selector, value string) {
	c.t.Helper()
	c.clickOn(selector + " > button")
	c.clickOn(fmt.Sprintf("%s [data-value=%q]", selector, value))
	c.until(fmt.Sprintf(`document.querySelector("%s .popup").hidden`, selector))
}

// offered returns what a picker offers for a search, each entry with a space for each level
// below the first.
func offered(c *tab, selector, search string) (entries []string) {
	c.t.Helper()
	c.clickOn(selector + " > button")
	if search != "" {
		c.write(search)
	}
	c.eval(fmt.Sprintf(`[...document.querySelectorAll("%s [role=option]")].map((e) => " ".repeat(e.dataset.level) + e.textContent)`, selector), &entries)
	c.press("Escape")
	return entries
}

func expectOffered(c *tab, selector, search string, want ...string) {
	c.t.Helper()
	if got := offered(c, selector, search); !slices.Equal(got, want) {
		c.t.Errorf("%s offers %q for %q, want %q", selector, got, search, want)
	}
}

func expect(c *tab, selector, want string) {
	c.t.Helper()
	if got := c.text(selector); got != want {
		c.t.Errorf("%s shows %q, want %q", selector, got, want)
	}
}

// announced selects the element that screen readers announce.
const announced = "#chart [role=treeitem]"

// expectContains checks that an element's text has all the given parts.
func expectContains(c *tab, selector string, parts ...string) {
	c.t.Helper()
	got := c.text(selector)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			c.t.Errorf("%s shows %q, which lacks %q", selector, got, part)
		}
	}
}

// expectList checks the texts of all elements that selector matches.
func expectList(c *tab, selector string, want ...string) {
	c.t.Helper()
	var got []string
	c.eval(fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.textContent)`, selector), &got)
	if !slices.Equal(got, want) {
		c.t.Errorf("%s show %q, want %q", selector, got, want)
	}
}

// address returns the fragment of the page's address.
func address(c *tab) (hash string) {
	c.t.Helper()
	c.eval("location.hash", &hash)
	return hash
}

// expectQuiet checks that nothing was logged, thrown or blocked.
func expectQuiet(c *tab) {
	c.t.Helper()
	for _, complaint := range c.complaints() {
		c.t.Error(complaint)
	}
}

// expectClean checks that nothing was logged, thrown or blocked, and that the only
// request was for the page itself.
func expectClean(c *tab) {
	c.t.Helper()
	expectQuiet(c)
	for _, r := range c.requests() {
		if !r.document || !strings.HasPrefix(r.url, "file://") {
			c.t.Errorf("the page requested %s, want no request", r.url)
		}
	}
}

// The profile of these tests has 100 samples. The leftmost process, "server", has 77 of
// them; its __libc_start_call_main has 70, and so has main on it.
func TestFlamePage(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	c.picture("flame")

	t.Run("facts", func(t *testing.T) {
		expect(c, "#title", "fulgur profile -F 99 10")
		expectContains(c, "#summary", "whole system", "100 samples", "10 s")
		expectContains(c, "#facts", "fulgur profile -F 99 10", "example", "6.12.0 x86_64", "10 s", "cpu-clock, 99 Hz", "Samples100")
		expect(c, "#lost", "10 losses")
		expectContains(c, "#lost[title*='3 samples lost'][title*='3 user stacks truncated']", "10 losses")
		expectContains(c, "#remedies", "3 samples lost", "raise the ring size", "3 user stacks truncated")
		expect(c, "#legend", "ProcessUserInlinedKernelInterpreted, JITNo symbolNote")
		expectContains(c, "#details", "Hottest functions", "peek30.0%")
	})

	t.Run("no server", func(t *testing.T) { // which would provide source and instructions
		c.press("c")
		c.until(`document.querySelector("#views [value=code]").hidden && document.body.dataset.view === "flame"`)
	})

	t.Run("tooltip", func(t *testing.T) {
		c.point(boxAt(c, 0.2, 3))
		expect(c, "#tip h2", "main")
		expectContains(c, "#tip dl", "70 (70.0%)", "User", "/usr/bin/server", "0x1130", "/src/server/main.cc:10")
		c.point(boxAt(c, 0.2, 6))
		expect(c, "#tip h2", "peek")
		expectContains(c, "#tip dl", "User, inlined", "/usr/bin/server", "/src/server/parse.h:3")
		if tip := c.text("#tip dl"); strings.Contains(tip, "Address") {
			t.Errorf("got an address of an inlined function: %s", tip)
		}
		c.picture("tooltip")
		c.point(boxAt(c, 0.2, 12))
		c.until(`document.querySelector("#tip").hidden`)
	})

	t.Run("zoom", func(t *testing.T) {
		c.click(boxAt(c, 0.2, 3))
		expect(c, "#path", "all›server›__libc_start_call_main›main 70.0%")
		expect(c, "#details h2", "main")
		expectContains(c, "#details", "/src/server/main.cc:10", "Called from__libc_start_call_main100%", "Callshttp::Server::handle")
		// main now takes the whole width, and so do its callers.
		c.point(boxAt(c, 0.99, 3))
		expect(c, "#tip h2", "main")
		c.point(boxAt(c, 0.99, 1))
		expect(c, "#tip h2", "server")
		c.picture("zoom")
		c.clickOn("#path button:nth-of-type(2)")
		expect(c, "#path", "all›server 77.0%")
		c.clickOn("#reset")
		expect(c, "#path", "all")
	})

	t.Run("search", func(t *testing.T) {
		c.press("/")
		c.write("^WALK$")
		expect(c, "#matched", "0% matched")
		c.press("Escape")
		c.press("/")
		c.write("^walk$") // recursive: nine stacks, each counted once
		expect(c, "#matched", "9.00% matched")
		c.picture("search")
		c.press("Enter")
		expect(c, announced, "walk: 6 samples, 6.00%")
		c.press("n", "n", "n")
		expect(c, announced, "walk: 3 samples, 3.00%")
		c.press("N")
		expect(c, announced, "walk: 6 samples, 6.00%")
		c.press("/")
		c.write("(")
		expect(c, "#matched", "invalid regular expression")
		c.press("Escape")
		expect(c, "#matched", "")
		c.press("/")
		c.write("module:libc[.]so")
		expect(c, "#matched", "77.0% matched")
		c.press("Escape", "/")
		c.write("file:parse[.]h")
		expect(c, "#matched", "30.0% matched")
		c.press("Escape", "Escape") // the search, the selection
	})

	t.Run("panel", func(t *testing.T) {
		c.click(boxAt(c, 0.2, 4))
		c.clickOn("#details .buttons button:nth-child(2)")
		expect(c, "#matched", "51.0% matched")
		c.press("Escape", "Escape")
		c.clickOn("#details section:last-child li:last-child button")
		expect(c, "#of", "__memmove_avx_unaligned_erms")
		c.press("f", "Escape")
	})

	t.Run("keys", func(t *testing.T) {
		c.press("ArrowUp")
		expect(c, announced, "all: 100 samples, 100%")
		c.press("ArrowUp")
		expect(c, announced, "server: 77 samples, 77.0%")
		c.press("ArrowRight")
		expect(c, announced, "kworker/u8:1: 10 samples, 10.0%")
		c.press("ArrowUp", "ArrowUp")
		expect(c, announced, "worker_thread: 10 samples, 10.0%")
		c.press("ArrowDown")
		expect(c, announced, "ret_from_fork: 10 samples, 10.0%")
		c.press("Enter")
		expect(c, "#path", "all›kworker/u8:1›ret_from_fork 10.0%")
		c.press("Home")
		expect(c, announced, "all: 100 samples, 100%")
		c.press("Escape", "Escape")
		expect(c, "#path", "all")
		c.press("?")
		c.until(`document.querySelector("#help").open`)
		c.picture("help")
		c.press("Escape")
		c.until(`!document.querySelector("#help").open`)
	})

	t.Run("icicle", func(t *testing.T) {
		c.press("i")
		c.until(`document.querySelector("#invert").checked`)
		c.point(boxAt(c, 0.2, 3))
		expect(c, "#tip h2", "main")
		c.press("ArrowDown", "ArrowDown")
		expect(c, announced, "server: 77 samples, 77.0%")
		c.picture("icicle")
		c.press("Escape")
		c.clickOn("#invert")
		c.point(boxAt(c, 0.2, 3))
		expect(c, "#tip h2", "main")
	})

	t.Run("callers", func(t *testing.T) {
		c.press("b")
		// From the leaf: 30 stacks end in peek, called by parse, called by handle…
		c.point(boxAt(c, 0.1, 1))
		expect(c, "#tip h2", "peek")
		expectContains(c, "#tip dl", "30 (30.0%)")
		c.click(boxAt(c, 0.1, 3))
		expectContains(c, "#path", "all›peek›std::vector<int", "handle", "30.0%")
		c.point(boxAt(c, 0.5, 6))
		expect(c, "#tip h2", "server")
		c.picture("callers")
		c.press("Escape", "Escape")
		c.clickOn("#merge") // which also removes the processes
		c.click(boxAt(c, 0.1, 3))
		c.point(boxAt(c, 0.5, 6))
		c.until(`document.querySelector("#tip").hidden`)
		c.press("Escape", "Escape")
		c.clickOn("#merge")
	})

	t.Run("merge", func(t *testing.T) {
		c.press("f")
		c.clickOn("#merge")
		// Of server and of node, 77 samples in one box.
		c.point(boxAt(c, 0.1, 1))
		expect(c, "#tip h2", "__libc_start_call_main")
		expectContains(c, "#tip dl", "77 (77.0%)")
		c.clickOn("#merge")
	})

	t.Run("sandwich", func(t *testing.T) {
		c.click(boxAt(c, 0.2, 4))
		c.press("s")
		expect(c, "#of", "http::Server::handle(http::Request const&)")
		c.point(boxAt(c, 0.1, 1))
		expect(c, "#tip h2", "std::vector<int, std::allocator<int>> parse<int>(char const*)")
		c.point(boxIn(c, "#callers canvas", false, 0.1, 1))
		expect(c, "#tip h2", "main")
		expectContains(c, "#tip dl", "51 (51.0%)")
		c.picture("sandwich")
		c.clickOn("#details section:last-child li:first-child button")
		expect(c, "#of", "std::vector<int, std::allocator<int>> parse<int>(char const*)")
	})

	t.Run("table", func(t *testing.T) {
		c.press("t")
		expectList(c, "#rows tr:nth-child(-n+3) th", "peek", "http::Server::handle(http::Request const&)", "vfs_write")
		expectContains(c, "#rows tr:first-child", "3030.0%", "server", "/src/server/parse.h:3", "User")
		c.picture("table")
		c.clickOn("[data-column=total] button")
		expectContains(c, "[data-column=total][aria-sort=descending]", "Total")
		expectContains(c, "#rows tr:first-child", "__libc_start_call_main", "7777.0%")
		c.clickOn("[data-column=total] button")
		expectContains(c, "[data-column=total][aria-sort=ascending]", "Total")
		c.clickOn("[data-column=name] button")
		expectContains(c, "#rows tr:first-child th", "JS:*render")
		c.press("/")
		c.write("^walk$")
		expectList(c, "#rows th", "walk")
		expectContains(c, "#rows tr", "99.00%")
		expect(c, "#count", "1 function")
		c.clickOn("#rows button")
		expect(c, "#of", "walk")
		c.press("Escape", "f")
	})

	t.Run("processes", func(t *testing.T) {
		expectOffered(c, "#task", "", "All processes",
			"server · 77.0%", " process 4242 · 73.0%", " process 4243 · 4.00%",
			"kworker/u8:1 · 10.0%", " process 12 · 10.0%", "node · 7.00%", " process 77 · 7.00%",
			"vendor · 6.00%", " process 99 · 6.00%")
		pick(c, "#task", "p.4243")
		c.point(boxAt(c, 0.9, 4))
		expect(c, "#tip h2", "http::Server::handle(http::Request const&)")
		expectContains(c, "#tip dl", "4 (100%)")
		pick(c, "#task", "c.node")
		c.point(boxAt(c, 0.9, 1))
		expect(c, "#tip h2", "node")
		c.press("t")
		expectList(c, "#rows th", "JS:*render /srv/app.js:12:3", "[anon+0x3a0000000f00]", "__libc_start_call_main")
		c.press("f")
		pick(c, "#task", "")
	})

	t.Run("values", func(t *testing.T) {
		expectList(c, "#value option", "Samples", "CPU time")
		choose(c, "#value", "1")
		c.point(boxAt(c, 0.2, 3))
		expectContains(c, "#tip dl", "CPU time", "707 ms (70.0%)")
		choose(c, "#value", "0")
	})

	t.Run("colors", func(t *testing.T) {
		choose(c, "#color", "module")
		expectContains(c, "#legend", "server", "libc.so.6", "[kernel.kallsyms]", "[nf_tables]")
		c.picture("modules")
		choose(c, "#color", "kind")
	})

	t.Run("address", func(t *testing.T) {
		c.click(boxAt(c, 0.2, 3))
		c.press("i", "/")
		c.write("peek")
		state := address(c)
		c.openAgain()
		c.until(`document.documentElement?.dataset.ready && document.querySelector("#matched").textContent`)
		if again := address(c); again != state {
			t.Errorf("the address %q became %q when loaded", state, again)
		}
		expect(c, "#path", "all›server›__libc_start_call_main›main 70.0%")
		expect(c, "#matched", "30.0% matched")
		c.press("Escape", "i", "Escape")
		expect(c, "#path", "all")
		if now := address(c); now != "#sort=name" {
			t.Errorf("address of the initial page with a sorted table = %q, want #sort=name", now)
		}
		c.press("t", "b")
		c.eval(`history.back(), 0`, new(int))
		c.until(`document.body.dataset.view === "table"`)
		c.eval(`history.back(), 0`, new(int))
		c.until(`document.body.dataset.view === "flame"`)
	})

	t.Run("address with all choices", func(t *testing.T) {
		c.press("f")
		choose(c, "#value", "1")
		pick(c, "#task", "p.4243")
		choose(c, "#color", "module")
		choose(c, "#theme", "dark")
		c.clickOn("#merge")
		c.click(boxAt(c, 0.2, 2))
		c.press("/")
		c.write("file:main")
		state := address(c)
		var url string
		c.eval(`location.href`, &url)
		c.open("about:blank")
		c.open(url)
		c.until(`document.documentElement?.dataset.ready && document.querySelector("#matched").textContent`)
		if again := address(c); again != state {
			t.Errorf("the address %q became %q when loaded", state, again)
		}
		var chosen []string
		c.eval(`["value", "color", "theme", "search"].map((id) => document.getElementById(id).value)
			.concat(document.querySelector("#task > button").textContent, String(document.getElementById("merge").checked))`, &chosen)
		if want := []string{"1", "module", "dark", "file:main", "process 4243 · 4.00%", "true"}; !slices.Equal(chosen, want) {
			t.Errorf("the page selected %q, want %q", chosen, want)
		}
		expectContains(c, "#path", "all›__libc_start_call_main›main 100%")
		expect(c, "#matched", "100% matched")
		c.point(boxAt(c, 0.2, 2))
		expectContains(c, "#tip dl", "CPU time", "40.4 ms (100%)")
		c.goTo("")
		c.until(`!document.querySelector("#merge").checked`)
	})

	t.Run("address of missing choices", func(t *testing.T) {
		legend := c.text("#legend")
		c.goTo("color=change&theme=x&view=y&value=7")
		var chosen []string
		c.eval(`["color", "theme", "value"].map((id) => document.getElementById(id).value)`, &chosen)
		if want := []string{"kind", "auto", "0"}; !slices.Equal(chosen, want) {
			t.Errorf("the page selected %q, want %q", chosen, want)
		}
		expect(c, "#legend", legend)
		c.goTo("")
	})
	expectClean(c)
}

// The page is light or dark like the system, unless the user chooses.
func TestDark(t *testing.T) {
	c, chromium := newChromiumTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	ground := func() (color string) {
		c.eval("getComputedStyle(document.body).backgroundColor", &color)
		return color
	}
	light := ground()
	chromium.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}},
	}, nil)
	if dark := ground(); dark == light {
		t.Errorf("background = %s with both color schemes, want different ones", dark)
	}
	c.click(boxAt(c, 0.2, 4))
	c.picture("dark")
	choose(c, "#theme", "light")
	if chosen := ground(); chosen != light {
		t.Errorf("background in the light theme = %s, want %s", chosen, light)
	}
	choose(c, "#theme", "auto")
	expectClean(c)
}

// Saved files contain the view, with names as text.
func TestSave(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Hostile(), flame.Options{})
	save := c.downloads()
	folded := save("#save-folded")
	for _, line := range []string{
		"-;[-+0xe001];- 14\n",
		`semi:colon;[semi:colon+0x3001];semi:colon 3` + "\n",
		`line\nbreak\r\ttab;[line\nbreak\r\ttab+0x4001];line\nbreak\r\ttab 4` + "\n",
	} {
		if !strings.Contains(folded, line) {
			t.Errorf("folded stacks without %q", line)
		}
	}
	svg := save("#save-svg")
	if !strings.Contains(svg, "&lt;script&gt;alert") || strings.Contains(svg, "<script") {
		t.Errorf("the picture contains markup of a name: %s", svg)
	}
	expectClean(c)
}

// The tree for screen readers matches the boxes.
func TestAccessibility(t *testing.T) {
	c, chromium := newChromiumTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	c.press("ArrowUp", "ArrowUp", "ArrowRight")
	chromium.call("Accessibility.enable", nil, nil)
	var tree struct {
		Nodes []struct {
			Role, Name struct{ Value string }
		}
	}
	chromium.call("Accessibility.getFullAXTree", nil, &tree)
	has := map[string]bool{}
	for _, n := range tree.Nodes {
		has[n.Role.Value+" "+n.Name.Value] = true
	}
	for _, want := range []string{
		"tree Flame graph", "treeitem kworker/u8:1: 10 samples, 10.0%", "button Table",
		"button Process or thread: All processes", "combobox Value", "complementary Details",
	} {
		if !has[want] {
			t.Errorf("no %s for screen readers", want)
		}
	}
	var item map[string]string
	c.eval(`Object.fromEntries([...document.querySelector("[role=treeitem]").attributes].map((a) => [a.name, a.value]))`, &item)
	for name, want := range map[string]string{"aria-level": "2", "aria-posinset": "2", "aria-setsize": "4", "aria-expanded": "true"} {
		if item[name] != want {
			t.Errorf("%s of the second process is %q, want %q", name, item[name], want)
		}
	}
	c.press("t")
	var rows []string
	c.eval(`[...document.querySelectorAll("thead th:not([hidden])")].map((e) => e.textContent + " " + e.scope)`, &rows)
	if want := []string{"Own col", "Total col", "Function col", "Module col", "Source col", "Kind col"}; !slices.Equal(rows, want) {
		t.Errorf("columns of the table = %q, want %q", rows, want)
	}
}

// Names are text wherever they are shown: markup in names does not create elements or
// run.
func TestHostileNames(t *testing.T) {
	const attack = `</script><script>window.hurt=1</script><img src=x onerror="window.hurt=1">`
	const control = "a\x1b[31mb\u202ec\u2028d\x00e\nf" // shown by escapes
	const shown = `a\x1b[31mb\u202ec\u2028d\x00e\nf`
	long := strings.Repeat("très::long<עברית>", 700) // nearly profile.MaxName
	b := profile.NewBuilder(profile.ValueType{Type: "samples" + attack, Unit: "count"},
		profile.ValueType{Type: control, Unit: attack})
	m := b.Mapping(profile.Mapping{Path: "/tmp/" + attack})
	function := func(name string) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name, File: name, StartLine: 1}), Mapping: m})
	}
	unresolved := b.Frame(profile.Frame{Mapping: m, Address: 0x42})
	var s profile.StackID
	for _, f := range []profile.FrameID{unresolved, function(attack), function(control), function(long), function("__proto__")} {
		s = b.Push(s, f)
	}
	for _, comm := range []string{attack, control} {
		b.Add(profile.Sample{
			Stack: s, Task: b.Task(profile.Task{Comm: comm, PID: len(comm)}), CPU: -1, Values: []int64{1, 2},
		})
	}
	p := b.Profile(profile.Meta{
		Command: attack, Host: attack, Kernel: attack, Arch: attack, Event: attack, Scope: attack,
	}, profile.Losses{})

	c := newTab(t)
	openFlame(c, p, flame.Options{})
	expect(c, "#title", attack)
	expectContains(c, "#facts", attack)
	for _, name := range []string{attack, shown} {
		if list := offered(c, "#task", ""); !slices.ContainsFunc(list, func(text string) bool { return strings.HasPrefix(text, name) }) {
			t.Errorf("%q is not in %q", name, list)
		}
	}
	expectContains(c, "#value", attack, "A"+shown[1:])
	c.point(boxAt(c, 0.1, 3))
	expect(c, "#tip h2", attack)
	expectContains(c, "#tip dl", "/tmp/"+attack)
	c.point(boxAt(c, 0.1, 4))
	expect(c, "#tip h2", shown)
	c.click(boxAt(c, 0.1, 5))
	expectContains(c, "#tip h2", "très::long<עברית>", "… (11,900 characters)")
	expectContains(c, "#details h2", "très::long<עברית>", "… (11,900 characters)")
	c.picture("hostile-long")
	c.click(boxAt(c, 0.1, 6))
	expectContains(c, "#path", attack, "__proto__")
	c.press("ArrowDown", "ArrowDown", "ArrowDown")
	expectContains(c, announced, attack)
	c.press("s")
	expect(c, "#of", attack)
	c.press("t")
	expectContains(c, "#rows", attack, shown, "très::long")
	c.picture("hostile-table")
	choose(c, "#color", "module")
	expectContains(c, "#legend", "script><img src=x")
	choose(c, "#value", "1")
	c.press("f", "/")
	c.write(attack)
	c.picture("hostile")
	expectInert(c)

	// The address is untrusted, too: it may come from a link.
	for _, hash := range []string{
		"q=" + attack, "view=" + attack, "zoom=..%2F.&up=" + attack, "value=__proto__&task=t.constructor",
		"fn=toString&view=sandwich", "sort=constructor&view=table", "value=length", "task=p.nobody", "color=__proto__&theme=" + attack, "%", "q=%E0%A4%A",
	} {
		c.goTo(hash)
		c.openAgain()
		c.until(`document.documentElement?.dataset.ready`)
		expect(c, "html[data-ready=true] #title", attack)
		expectInert(c)
	}
	expectClean(c)
}

// expectInert checks that no name created an element or ran.
func expectInert(c *tab) {
	c.t.Helper()
	var tags []string
	c.eval(`[...document.querySelectorAll("img, script")].map((e) => e.localName + "#" + e.id)`, &tags)
	if want := []string{"script#data", "script#"}; !slices.Equal(tags, want) {
		c.t.Errorf("elements = %q, want %q", tags, want)
	}
	var hurt bool
	c.eval(`"hurt" in window`, &hurt)
	if hurt {
		c.t.Error("a name ran as a script")
	}
}

// The content security policy protects the page even from markup in it: only the page's
// own script and style run or load.
func TestPolicy(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Threads(), flame.Options{})
	var blocked []string
	c.eval(`new Promise((resolve) => {
		const blocked = new Set();
		document.addEventListener("securitypolicyviolation", (e) => {
			blocked.add(e.effectiveDirective);
			if (blocked.size === 4) resolve([...blocked].sort());
		});
		const script = document.createElement("script");
		script.append("window.hurt = 1");
		const style = document.createElement("style");
		style.textContent = "body { color: red }";
		const image = document.createElement("img");
		image.src = "http://127.0.0.1:9/";
		document.body.append(script, style, image);
		fetch("http://127.0.0.1:9/").catch(() => {});
	})`, &blocked)
	if want := []string{"connect-src", "img-src", "require-trusted-types-for", "style-src-elem"}; !slices.Equal(blocked, want) {
		t.Errorf("blocked %q, want %q", blocked, want)
	}
	// Text cannot become markup or code, either.
	for _, attempt := range []string{
		`document.body.innerHTML = "<p>"`, `document.write("<p>")`,
		`document.body.setAttribute("onclick", "window.hurt = 1")`, `setTimeout("window.hurt = 1")`, `eval("window.hurt = 1")`,
	} {
		var thrown bool
		// Code that the test evaluates may call eval, but not code that a timer runs.
		c.eval(fmt.Sprintf(`new Promise((done) => setTimeout(() => { try { %s; done(false); } catch { done(true); } }))`, attempt), &thrown)
		if !thrown {
			t.Errorf("no error from %s", attempt)
		}
	}
	var hurt bool
	c.eval(`"hurt" in window`, &hurt)
	if hurt {
		t.Error("a foreign script ran")
	}
}

// Threads and CPUs are separate, and the page can begin as an icicle.
func TestThreads(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Threads(), flame.Options{Inverted: true, Value: 1})
	c.point(boxAt(c, 0.1, 1))
	expect(c, "#tip h2", "[CPU 1]")
	c.point(boxAt(c, 0.1, 2))
	expect(c, "#tip h2", "server-42/43")
	expectContains(c, "#tip dl", "50.5 ms (50.0%)")
	expectOffered(c, "#task", "", "All processes", "server · 100%", " process 42 · 100%", "  thread 42 · 50.0%", "  thread 43 · 50.0%")
	pick(c, "#task", "t.42")
	c.point(boxAt(c, 0.1, 1))
	expect(c, "#tip h2", "[CPU 0]")
	c.clickOn("#merge")
	c.point(boxAt(c, 0.1, 1))
	expect(c, "#tip h2", "main")
	expectContains(c, "#tip dl", "50.5 ms (100%)")
	c.picture("threads")
	expectClean(c)
}

// Functions and processes of the same name are separate, in every view.
func TestNamesakes(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	var stack profile.StackID
	for i, name := range []string{"main", "sort", "cmp"} {
		stack = b.Push(stack, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})}))
		b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{Comm: "sort"}), CPU: -1, Values: []int64{int64(i + 1)}})
	}
	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	for depth, want := range map[int][]string{
		1: {"KindProcess", "Total6 (100%)Self0 (0%)", "Callsmain100%"},
		3: {"KindUser", "Total5 (83.3%)Self2 (33.3%)", "Called frommain100%", "Callscmp60.0%"},
	} {
		c.press("f")
		c.click(boxAt(c, 0.1, depth))
		expect(c, "#details h2", "sort")
		c.clickOn("#details .buttons button:first-child")
		expect(c, "#of", "sort")
		expectContains(c, "#details", want...)
	}

	// The root is not a function that can be selected.
	var root string
	c.eval(pageScript(c)(`load().then((data) => new Page(data).names.key(data.tree.frame[0]))`), &root)
	c.goTo("view=sandwich&fn=" + root)
	c.until(`document.querySelector("#of").textContent === "cmp"`)
	expectClean(c)
}

// Search results remain available after many selections: existing views are not
// rebuilt.
func TestManySelections(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	var stack profile.StackID
	for i := range 30 {
		stack = b.Push(stack, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: fmt.Sprintf("f%d", i)})}))
	}
	b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{Comm: "deep"}), CPU: -1, Values: []int64{1}})
	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	c.press("/")
	c.write("^f1$")
	c.press("Enter")
	expect(c, announced, "f1: 1 sample, 100%")
	for range 15 {
		c.press("ArrowUp")
	}
	expect(c, announced, "f16: 1 sample, 100%")
	c.press("i", "n")
	expect(c, announced, "f1: 1 sample, 100%")

	var kept struct {
		Same  bool
		Views int
	}
	c.eval(pageScript(c)(`load().then((data) => {
		const page = new Page(data);
		const { view } = page.chart;
		page.functions.frames.forEach((_, f) => page.viewOf("callees of", f));
		return { Same: page.viewOf("flame") === view, Views: page.views.size };
	})`), &kept)
	if !kept.Same || kept.Views > 25 {
		t.Errorf("kept views = %+v, want the visible one and 24 others", kept)
	}
	expectClean(c)
}

// The list has only the heaviest of very many processes, and says so. A search finds all.
func TestManyProcesses(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	for i := range 150 {
		b.Add(profile.Sample{Task: b.Task(profile.Task{PID: i + 1, Comm: "Worker"}), CPU: -1, Values: []int64{int64(i + 1)}})
	}
	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	list := offered(c, "#task", "")
	if want := " process 150 · 1.32%"; len(list) != 103 || list[2] != want || list[102] != " … 50 more" {
		t.Errorf("the picker offers %d entries: %q, want the 100 heaviest processes", len(list), list)
	}
	expectOffered(c, "#task", "process 7", "Worker · 100%", " process 79 · 0.70%", " process 78 · 0.69%", " process 77 · 0.68%", " process 76 · 0.67%",
		" process 75 · 0.66%", " process 74 · 0.65%", " process 73 · 0.64%", " process 72 · 0.64%", " process 71 · 0.63%", " process 70 · 0.62%", " process 7 · 0.06%")
	expectOffered(c, "#task", "nobody", "none")
	if list := offered(c, "#task", "worker"); len(list) != 102 {
		t.Errorf("a search for the name offers %d entries, want it with its processes", len(list))
	}
	c.clickOn("#task > button")
	c.write("PROCESS 9")
	c.press("ArrowDown", "Enter") // after the heaviest, 99
	c.until(`new URLSearchParams(location.hash.slice(1)).get("task") === "p.98"`)
	expect(c, "#task > button", "process 98 · 0.87%")
	pick(c, "#task", "")
	// None of these is a function.
	expectList(c, "#details li .name")
	c.press("s")
	expect(c, "#of", "all")
	expectList(c, "#details h3", "All occurrences", "Calls")
	expectClean(c)
}

// A comparison colors functions that grew or shrank.
func TestCompare(t *testing.T) {
	build := func(slow, fast int64) *profile.Profile {
		b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
		for name, n := range map[string]int64{"slow": slow, "fast": fast, "same": 100} {
			s := b.Push(b.Push(0, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "main"})})),
				b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})}))
			b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: "x"}), CPU: -1, Values: []int64{n}})
		}
		return b.Profile(profile.Meta{Command: "x"}, profile.Losses{})
	}
	c := newTab(t)
	openFlame(c, build(250, 50), flame.Options{Base: build(50, 250)})
	expectContains(c, "#legend", "only before", "same share", "only now")
	c.point(boxAt(c, 0.1, 3))
	expect(c, "#tip h2", "slow")
	expectContains(c, "#tip dl", "250 (62.5%)", "Before12.5%", "Change+50.00 points")
	expectContains(c, "#summary", "400 samples", "before: 400 samples")
	expectList(c, "#details h3", "Totals", "More", "Less")
	expectContains(c, "#details", "Before400Now400", "slow50 → 250+50.00 points", "fast250 → 50−50.00 points")
	c.picture("compare")
	c.press("t")
	expectContains(c, "#rows tr:first-child", "25062.5%", "5012.5%", "+50.00 points")
	expectList(c, "#rows th", "slow", "main", "same", "fast")
	expectContains(c, "#rows tr:last-child", "−50.00 points")
	expectClean(c)
}

// A large page omits narrow boxes.
func TestLargePage(t *testing.T) {
	c := newTab(t)
	c.resize(1280, 800, 2)
	openFlame(c, encodetest.Large(3000), flame.Options{})
	c.point(boxAt(c, 0.5, 0))
	expect(c, "#tip h2", "all")
	c.click(boxAt(c, 0.005, 1))
	expectContains(c, "#path", "process")
	c.picture("large")
	c.press("b")
	c.picture("large-callers")
	expectClean(c)
}

// The page works in a narrow window.
func TestNarrowPage(t *testing.T) {
	c := newTab(t)
	c.resize(420, 800, 1)
	openFlame(c, encodetest.Typical(), flame.Options{})
	c.click(boxAt(c, 0.2, 3))
	expect(c, "#details h2", "main")
	var over bool
	c.eval(`document.documentElement.scrollWidth > innerWidth`, &over)
	if over {
		t.Error("the page is wider than the window")
	}
	c.picture("narrow")
	// The page follows the window's size, and keeps the selection.
	c.resize(1100, 700, 1)
	c.until(`document.querySelector("#chart").clientWidth > 700`)
	c.point(boxAt(c, 0.99, 3))
	expect(c, "#tip h2", "main")
	c.resize(420, 800, 1)
	c.until(`document.querySelector("#chart").clientWidth < 420`)
	c.press("t")
	c.picture("narrow-table")
	expectClean(c)
}

// A chart that does not show all rows keeps the root visible when its window grows, and
// both charts of a sandwich are equally wide.
func TestLowPage(t *testing.T) {
	c := newTab(t)
	resize := func(height int) {
		t.Helper()
		c.resize(1280, height, 1)
	}
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	var stack profile.StackID
	for i := range 30 {
		stack = b.Push(stack, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: fmt.Sprintf("f%d", i)})}))
	}
	b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{PID: 1, Comm: "deep"}), CPU: -1, Values: []int64{1}})
	resize(500)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	c.goTo("invert=0")
	c.point(boxAt(c, 0.1, 0))
	expect(c, "#tip h2", "all")
	var height int
	c.eval(`document.querySelector("#chart").clientHeight`, &height)
	resize(600)
	c.until(fmt.Sprintf(`document.querySelector("#chart").clientHeight > %d`, height))
	c.point(boxAt(c, 0.1, 0))
	expect(c, "#tip h2", "all")
	c.click(boxAt(c, 0.1, 3))
	c.press("s")
	expect(c, "#of", "f1")
	var charts []struct{ Width, Scrollbar int }
	c.eval(`["#callers", "#scroller"].map((id) => document.querySelector(id)).map((host) => ({
		Width: host.querySelector("canvas").clientWidth, Scrollbar: Number(host.scrollHeight > host.clientHeight),
	}))`, &charts)
	if charts[0].Width != charts[1].Width {
		t.Errorf("charts of a sandwich, one with a scrollbar, have different widths: %+v", charts)
	}
	if charts[0].Scrollbar == charts[1].Scrollbar {
		t.Errorf("charts = %+v, want one that scrolls", charts)
	}
	c.picture("low")
	expectClean(c)
}

func TestEmptyPage(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Empty(), flame.Options{})
	expect(c, "#notice", "No samples were taken.")
	c.press("ArrowUp", "Enter", "s", "b", "t", "f")
	c.press("/")
	c.write("x")
	expect(c, "#matched", "0% matched")
	c.point(boxAt(c, 0.5, 0))
	c.picture("empty")
	expectClean(c)
}

// The page reports truncated data, as from a full disk.
func TestDamagedPage(t *testing.T) {
	c := newTab(t)
	var page bytes.Buffer
	if err := flame.WriteHTML(&page, encodetest.Typical(), flame.Options{}); err != nil {
		t.Fatal(err)
	}
	before, data, _ := bytes.Cut(page.Bytes(), []byte("octet-stream\">"))
	data, after, _ := bytes.Cut(data, []byte("</script>"))
	path := filepath.Join(t.TempDir(), "flame.html")
	damaged := slices.Concat(before, []byte("octet-stream\">"), data[:len(data)/2&^3], []byte("</script>"), after)
	if err := os.WriteFile(path, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	c.open("file://" + path)
	c.until(`document.documentElement?.dataset.ready === "failed"`)
	expectContains(c, "#notice", "The data of this page cannot be read")
}
