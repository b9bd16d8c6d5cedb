package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/encode/encodetest"
	"fulgur/internal/encode/flame"
	"fulgur/internal/profile"
)

// rowHeight is the height of a row of boxes, and edge the space between the
// chart's edge and the outermost one, in CSS pixels.
const rowHeight, edge = 20, 5

// openFlame writes p as a page and opens it from the file system.
func openFlame(c *tab, p *profile.Profile) { openFlameWith(c, p, flame.Options{}) }

func openFlameWith(c *tab, p *profile.Profile, o flame.Options) {
	c.t.Helper()
	var page bytes.Buffer
	if err := flame.WriteHTML(&page, p, o); err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.t.TempDir(), "flame.html")
	if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	c.until(`document.documentElement?.dataset.ready === "true"`)
}

// boxAt returns the point of the page at a share of the chart's width, 0 to
// 1, in the row at a depth, 0 for the root.
func boxAt(c *tab, share float64, depth int) (x, y float64) {
	c.t.Helper()
	var chart struct{ Left, Top, Width, Height float64 }
	c.eval(`(({left, top, width, height}) => ({left, top, width, height}))(
		document.querySelector("#chart").getBoundingClientRect())`, &chart)
	x = chart.Left + share*chart.Width
	fromEdge := edge + (float64(depth)+0.5)*rowHeight
	var icicle bool
	c.eval(`document.querySelector("#icicle").getAttribute("aria-pressed") === "true"`, &icicle)
	if icicle {
		return x, chart.Top + fromEdge
	}
	return x, chart.Top + chart.Height - fromEdge
}

func expect(c *tab, selector, want string) {
	c.t.Helper()
	if got := c.text(selector); got != want {
		c.t.Errorf("%s shows %q, want %q", selector, got, want)
	}
}

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

// expectClean checks that nothing was logged, thrown, blocked, asked or
// fetched but the page itself.
func expectClean(c *tab) {
	c.t.Helper()
	for _, method := range []string{
		"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening",
	} {
		for _, e := range c.seen(method) {
			c.t.Errorf("%s: %s", method, e.Params)
		}
	}
	for _, e := range c.seen("Network.requestWillBeSent") {
		var r struct {
			Type    string
			Request struct{ URL string }
		}
		if err := json.Unmarshal(e.Params, &r); err != nil {
			c.t.Fatal(err)
		}
		if r.Type != "Document" || !strings.HasPrefix(r.Request.URL, "file://") {
			c.t.Errorf("the page asked for %s (%s)", r.Request.URL, r.Type)
		}
	}
}

// The profile of these tests has 100 samples; the process "server" has 77 of
// them and is leftmost, its __libc_start_call_main 70, main on it 70.
func TestFlamePage(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical())
	c.screenshot("flame")

	t.Run("facts", func(t *testing.T) {
		expect(c, "#title", "fulgur profile -F 99 10")
		expectContains(c, "#summary", "whole system", "100 samples", "10 s")
		expectContains(c, "#facts", "example", "6.12.0 x86_64", "cpu-clock, 99 Hz", "samples 3", "user stacks cut 3")
		expect(c, "#legend", "ProcessUserKernelJITNo symbolNoteInlined")
	})

	t.Run("tooltip", func(t *testing.T) {
		c.point(boxAt(c, 0.2, 3))
		expect(c, "#tip h2", "main")
		expectContains(c, "#tip dl", "70 (70.0%)", "User", "/usr/bin/server", "0x1130", "/src/server/main.cc:10")
		c.point(boxAt(c, 0.2, 6))
		expect(c, "#tip h2", "peek")
		expectContains(c, "#tip dl", "User, inlined", "/usr/bin/server", "/src/server/parse.h:3")
		if tip := c.text("#tip dl"); strings.Contains(tip, "Address") {
			c.t.Errorf("an inlined function has an address: %s", tip)
		}
		c.screenshot("tooltip")
		c.point(boxAt(c, 0.2, 12))
		c.until(`document.querySelector("#tip").hidden`)
	})

	t.Run("zoom", func(t *testing.T) {
		c.click(boxAt(c, 0.2, 3))
		expect(c, "#path", "all›server›__libc_start_call_main›main 70.0%")
		// main now takes the whole width, and so do its callers.
		c.point(boxAt(c, 0.99, 3))
		expect(c, "#tip h2", "main")
		c.point(boxAt(c, 0.99, 1))
		expect(c, "#tip h2", "server")
		c.screenshot("zoom")
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
		c.screenshot("search")
		c.press("Enter")
		expect(c, "#spoken", "walk: 6 samples, 6.00%")
		c.press("/")
		c.write("(")
		expect(c, "#matched", "not a valid expression")
		c.press("Escape")
		expect(c, "#matched", "")
		c.press("Escape") // the selection
	})

	t.Run("keys", func(t *testing.T) {
		c.press("ArrowUp")
		expect(c, "#spoken", "all: 100 samples, 100%")
		c.press("ArrowUp")
		expect(c, "#spoken", "server: 77 samples, 77.0%")
		c.press("ArrowRight")
		expect(c, "#spoken", "kworker/u8:1: 10 samples, 10.0%")
		c.press("ArrowUp", "ArrowUp")
		expect(c, "#spoken", "worker_thread: 10 samples, 10.0%")
		c.press("ArrowDown")
		expect(c, "#spoken", "ret_from_fork: 10 samples, 10.0%")
		c.press("Enter")
		expect(c, "#path", "all›kworker/u8:1›ret_from_fork 10.0%")
		c.press("Escape", "Escape")
		expect(c, "#path", "all")
	})

	t.Run("icicle", func(t *testing.T) {
		c.clickOn("#icicle")
		c.point(boxAt(c, 0.2, 3))
		expect(c, "#tip h2", "main")
		c.screenshot("icicle")
		c.clickOn("#flame")
		c.point(boxAt(c, 0.2, 3))
		expect(c, "#tip h2", "main")
	})

	t.Run("dark", func(t *testing.T) {
		ground := func() (colour string) {
			c.eval("getComputedStyle(document.body).backgroundColor", &colour)
			return colour
		}
		light := ground()
		c.call("Emulation.setEmulatedMedia", map[string]any{
			"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}},
		}, nil)
		if dark := ground(); dark == light {
			t.Errorf("the background is %s with either colour scheme", dark)
		}
		c.screenshot("dark")
	})
	expectClean(c)
}

// Names are text wherever they are shown: markup in them makes no element
// and runs nothing.
func TestHostileNames(t *testing.T) {
	const attack = `</script><script>window.hurt=1</script><img src=x onerror="window.hurt=1">`
	b := profile.NewBuilder(profile.ValueType{Type: "samples" + attack, Unit: "count"})
	m := b.Mapping(profile.Mapping{Path: "/tmp/" + attack})
	f := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: attack, File: attack, StartLine: 1}), Mapping: m})
	unresolved := b.Frame(profile.Frame{Mapping: m, Address: 0x42})
	b.Add(profile.Sample{
		Stack: b.Push(b.Push(0, unresolved), f), Task: b.Task(profile.Task{Comm: attack}), CPU: -1, Values: []int64{1},
	})
	p := b.Profile(profile.Meta{
		Command: attack, Host: attack, Kernel: attack, Arch: attack, Event: attack, Scope: attack,
	}, profile.Losses{})

	c := newTab(t)
	openFlame(c, p)
	expect(c, "#title", attack)
	c.point(boxAt(c, 0.5, 3))
	expect(c, "#tip h2", attack)
	expectContains(c, "#tip dl", "/tmp/"+attack)
	c.click(boxAt(c, 0.5, 3))
	expectContains(c, "#path", attack)
	c.press("ArrowUp")
	expectContains(c, "#spoken", attack)
	c.press("/")
	c.write(attack)
	c.screenshot("hostile")

	var tags []string
	c.eval(`[...document.querySelectorAll("img, script")].map((e) => e.localName + "#" + e.id)`, &tags)
	if want := []string{"script#data", "script#"}; !slices.Equal(tags, want) {
		t.Errorf("the page has the elements %q, want %q", tags, want)
	}
	var hurt bool
	c.eval(`"hurt" in window`, &hurt)
	if hurt {
		t.Error("a name was executed")
	}
	expectClean(c)
}

// The content security policy holds even if markup got into the page: what is
// not the page's own script and style does not run or load.
func TestPolicy(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Threads())
	var blocked []string
	c.eval(`new Promise((resolve) => {
		const blocked = [];
		document.addEventListener("securitypolicyviolation", (e) => {
			blocked.push(e.effectiveDirective);
			if (blocked.length === 4) resolve(blocked.sort());
		});
		const script = document.createElement("script");
		script.textContent = "window.hurt = 1";
		const style = document.createElement("style");
		style.textContent = "body { color: red }";
		const image = document.createElement("img");
		image.src = "http://127.0.0.1:9/";
		document.body.append(script, style, image);
		fetch("http://127.0.0.1:9/").catch(() => {});
	})`, &blocked)
	want := []string{"connect-src", "img-src", "script-src-elem", "style-src-elem"}
	if !slices.Equal(blocked, want) {
		t.Errorf("blocked %q, want %q", blocked, want)
	}
}

// A large page is compressed, and drawn without its narrow boxes.
func TestLargePage(t *testing.T) {
	c := newTab(t)
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": 1280, "height": 800, "deviceScaleFactor": 2, "mobile": false,
	}, nil)
	openFlame(c, encodetest.Large(3000))
	c.point(boxAt(c, 0.5, 0))
	expect(c, "#tip h2", "all")
	c.click(boxAt(c, 0.005, 1))
	expectContains(c, "#path", "process")
	c.screenshot("large")
	expectClean(c)
}

func TestEmptyPage(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Empty())
	expect(c, "#notice", "No samples were taken.")
	c.press("ArrowUp", "Enter")
	c.press("/")
	c.write("x")
	expect(c, "#matched", "0% matched")
	c.point(boxAt(c, 0.5, 0))
	c.screenshot("empty")
	expectClean(c)
}

// A comparison tells of each function what it was and is; what comes and goes
// has the colours of the legend's ends.
func TestComparison(t *testing.T) {
	c := newTab(t)
	openFlameWith(c, encodetest.Compared(), flame.Options{Value: 1, Compare: true})
	c.screenshot("comparison")
	expect(c, "#legend", "GoneLessSameMoreNew")
	// handle has 70 samples: sort 30, cache 20, parse 10 and its own 10.
	c.point(boxAt(c, 0.6, 4))
	expect(c, "#tip h2", "cache")
	expectContains(c, "#tip dl", "Before0 (0%)", "After20 (28.6%)", "Change+20")
	c.point(boxAt(c, 0.8, 4))
	expect(c, "#tip h2", "parse")
	expectContains(c, "#tip dl", "Before40 (40.0%)", "After10 (14.3%)", "Change−30, −75.0%")
	expectClean(c)
	colour := func(share float64) (pixel [4]int) {
		x, y := boxAt(c, share, 4)
		c.point(1, 1) // nothing is outlined
		c.eval(fmt.Sprintf(`new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => {
			const chart = document.querySelector("#chart"), box = chart.getBoundingClientRect(), ratio = devicePixelRatio;
			resolve([...chart.getContext("2d").getImageData((%v - box.left) * ratio, (%v - box.top - 8) * ratio, 1, 1).data]);
		})))`, x, y), &pixel)
		return pixel
	}
	if more := colour(0.6); more[0] <= more[2] {
		t.Errorf("what is new has the colour %v, want orange", more)
	}
	if less := colour(0.8); less[0] >= less[2] {
		t.Errorf("what became less has the colour %v, want blue", less)
	}
}
