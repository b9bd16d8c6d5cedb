package browser

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// shownBox is a box of a picture, as the browser shows it.
type shownBox struct {
	Title, Label   string
	Top, Width     float64
	InFront, Plain bool // it is hit by the pointer at its center; it contains only text
}

// openPicture opens the SVG document at path, with or without its script, and returns its boxes in the order of the document.
func openPicture(c *tab, chromium *devtools, path string, script bool) (boxes []shownBox) {
	c.t.Helper()
	chromium.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !script}, nil)
	c.open("file://" + path)
	c.until(`document.readyState === "complete" && location.pathname.endsWith(".svg")`)
	var root string
	c.eval(`document.documentElement.localName + " " + document.querySelectorAll("parsererror, script, image, foreignObject, a").length`, &root)
	if root != "svg 1" {
		c.t.Fatalf("root and number of foreign elements = %q, want \"svg 1\", which is the script", root)
	}
	c.eval(`[...document.querySelectorAll("g")].map((g) => {
		const rect = g.querySelector("rect");
		rect.scrollIntoView({ block: "center" });
		const { left, top, width, height } = rect.getBoundingClientRect();
		return {
			Title: g.querySelector("title").textContent, Label: g.querySelector("text")?.textContent ?? "",
			Top: top + scrollY, Width: width,
			InFront: document.elementFromPoint(left + width / 2, top + height / 2)?.parentNode === g,
			Plain: [...g.querySelectorAll("title, text")].every((e) => e.childElementCount === 0),
		};
	})`, &boxes)
	return boxes
}

// Pictures are drawn by the browser without a script, upright and inverted, and
// names in them are text.
func TestPicture(t *testing.T) {
	const attack = `</title></text><script>document.documentElement.remove()</script><image href="http://127.0.0.1:9/"/>&lt;`
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	frame := func(name string) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name, File: "/" + attack, StartLine: 7})})
	}
	s := b.Push(b.Push(0, frame("main")), frame(attack))
	b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: attack}), CPU: -1, Values: []int64{42}})
	p := b.Profile(profile.Meta{Command: attack, Host: attack}, profile.Losses{})

	for name, inverted := range map[string]bool{"flame": false, "inverted": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name+".svg")
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := flame.WriteSVG(file, p, flame.Options{Inverted: inverted}); err != nil {
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			c, chromium := newChromiumTab(t)
			boxes := openPicture(c, chromium, path, false)
			c.picture("picture-" + name)
			titles := []string{"all: 42 samples, 100.00%", attack + ": 42 samples, 100.00%",
				"main: 42 samples, 100.00%\n/" + attack + ":7", attack + ": 42 samples, 100.00%\n/" + attack + ":7"}
			if len(boxes) != len(titles) {
				t.Fatalf("got %d boxes, want %d", len(boxes), len(titles))
			}
			for i, box := range boxes {
				if box.Title != titles[i] || box.Label == "" || !box.Plain {
					t.Errorf("box %d = %+v, want the title %q and a label, both plain text", i, box, titles[i])
				}
				if box.Width < 1000 || !box.InFront {
					t.Errorf("box %d is not visible: %+v", i, box)
				}
				if i > 0 && (box.Top > boxes[i-1].Top) != inverted {
					t.Errorf("box %d at %g is on the wrong side of its caller at %g", i, box.Top, boxes[i-1].Top)
				}
			}
			var title string
			c.eval(`document.querySelector(".title").textContent`, &title)
			if title != attack {
				t.Errorf("title = %q, want %q", title, attack)
			}
			expectClean(c)
		})
	}
}

// The script of a picture zooms into a box and keeps its callers visible. It searches. The
// address contains both, and markup in it has no effect. A tall picture first shows its
// root.
func TestPictureScript(t *testing.T) {
	const attack = `<img src=x onerror="document.documentElement.remove()">`
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	frame := func(name string) profile.FrameID {
		return b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})})
	}
	task := b.Task(profile.Task{PID: 1, Comm: "server"})
	add := func(n int64, names ...string) {
		s := profile.StackID(0)
		for _, name := range names {
			s = b.Push(s, frame(name))
		}
		b.Add(profile.Sample{Stack: s, Task: task, CPU: -1, Values: []int64{n}})
	}
	add(60, "main", "parse", "next: line")
	add(30, "main", "sort", "compare")
	add(10, "main", attack)
	deep := []string{"main", "sort"}
	for range 100 {
		deep = append(deep, "recurse")
	}
	add(100, deep...)
	p := b.Profile(profile.Meta{}, profile.Losses{})
	for name, inverted := range map[string]bool{"upright": false, "inverted": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.svg")
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(flame.WriteSVG(file, p, flame.Options{Inverted: inverted}), file.Close()); err != nil {
				t.Fatal(err)
			}
			c := newTab(t)
			c.open("file://" + path)
			c.until(`document.readyState === "complete" && !!document.querySelector("#search")`)
			do := func(script string) {
				t.Helper()
				var ok bool
				c.eval("(() => {"+script+"; return true; })()", &ok)
			}
			expectTrue := func(condition string) {
				t.Helper()
				var ok bool
				if c.eval(condition, &ok); !ok {
					t.Errorf("false: %s", condition)
				}
			}
			do(`
				globalThis.g = (start) => [...document.querySelectorAll("g")].find((g) => g.textContent.startsWith(start));
				globalThis.visible = () => [...document.querySelectorAll("g")].filter((g) => g.style.display !== "none").map((g) => g.querySelector("title").textContent.split(": ")[0]);
				globalThis.zoom = (start) => g(start).querySelector("rect").dispatchEvent(new MouseEvent("click", { bubbles: true }))`)
			expectTrue(`(({ top, bottom }) => top >= 0 && bottom <= innerHeight)(g("all:").getBoundingClientRect())`)
			do(`zoom("compare:")`)
			expectTrue(`visible().join() === "all,server,main,sort,compare" && Math.abs(g("sort:").querySelector("rect").getBBox().width - 1175.5) < 0.1`)
			do(`zoom("parse:")`)
			expectTrue(`visible().join() === "all,server,main,parse,next"`)
			expectTrue(`["all:", "main:", "parse:", "next: line:"].every((s) => Math.abs(g(s).querySelector("rect").getBBox().width - 1175.5) < 0.1)`)
			do(`zoom("next:")`)
			expectTrue(`visible().join() === "all,server,main,parse,next" && Math.abs(g("main:").querySelector("rect").getBBox().width - 1175.5) < 0.1`)
			expectTrue(`g("next: line:").querySelector("text").textContent === "next: line"`)
			expectTrue(`/^#zoom=\d+$/.test(location.hash)`)
			do(`document.querySelector("#reset").dispatchEvent(new MouseEvent("click", { bubbles: true }))`)
			expectTrue(`visible().length === document.querySelectorAll("g").length && location.hash === ""`)
			expectTrue(`Math.abs(g("parse:").querySelector("rect").getBBox().width - 352.3) < 0.1`)
			do(`prompt = () => "^(parse|next)|compare"; document.querySelector("#search").dispatchEvent(new MouseEvent("click"))`)
			expectTrue(`document.querySelector("#search").textContent === "Matched: 45.0% · Search"`)
			expectTrue(`[...document.querySelectorAll("g rect")].filter((r) => r.style.fill !== "").length === 3`)
			do(`prompt = () => "<img src=x onerror=("; document.querySelector("#search").dispatchEvent(new MouseEvent("click"))`)
			expectTrue(`document.querySelector("#search").textContent === "Matched: 0.0% · Search" && document.querySelectorAll("img").length === 0`)
			do(`zoom("<img"); document.querySelector("g rect").dispatchEvent(new MouseEvent("mouseover", { bubbles: true }))`)
			// The address restores both; hostile ones do nothing.
			for hash, want := range map[string]string{
				"#zoom=3&search=sort": "Matched: 65.0% · Search", "#zoom=-1&search=%3Cimg": "Matched: 5.0% · Search", "#zoom=constructor": "Search",
			} {
				c.open("about:blank")
				c.open("file://" + path + hash)
				c.until(`document.readyState === "complete" && !!document.querySelector("#search")`)
				var got string
				if c.eval(`document.querySelector("#search").textContent`, &got); got != want {
					t.Errorf("%s: got %q, want %q", hash, got, want)
				}
				expectTrue(`document.querySelectorAll("img").length === 0`)
			}
			c.picture("picture-script-" + name)
			expectClean(c)
		})
	}
}

// Printing shows the whole graph, in light colors and without controls.
func TestPrint(t *testing.T) {
	c, chromium := newChromiumTab(t)
	// In this window, a part of the graph is not visible.
	c.resize(1280, 220, 1)
	openFlame(c, encodetest.Typical(), flame.Options{})
	choose(c, "#theme", "dark")
	type look struct {
		Rows, Scheme string // number of rows that fit
		Buttons      int
	}
	now := `({
		Rows: String(Math.floor(document.querySelector("#chart").height / 18)),
		Scheme: getComputedStyle(document.documentElement).colorScheme,
		Buttons: [...document.querySelectorAll("button, select, input")].filter((e) => e.checkVisibility()).length,
	})`
	var before, printed, after look
	c.eval(now, &before)
	c.eval(`(addEventListener("beforeprint", () => { window.printed = `+now+`; }), 0)`, new(int))
	var paper struct{ Data []byte }
	chromium.call("Page.printToPDF", nil, &paper)
	c.eval(`window.printed`, &printed)
	c.eval(now, &after)
	if after != before {
		t.Errorf("page after printing = %+v, want %+v as before", after, before)
	}
	if printed.Rows != "9" || before.Rows == "9" {
		t.Errorf("got %s rows on paper and %s on the screen, want all 9 and fewer", printed.Rows, before.Rows)
	}
	if before.Scheme != "dark" || printed.Scheme != "light" {
		t.Errorf("color scheme of paper = %s and of the screen = %s, want light and dark", printed.Scheme, before.Scheme)
	}
	chromium.call("Emulation.setEmulatedMedia", map[string]any{"media": "print"}, nil)
	var style look
	c.eval(now, &style)
	if before.Buttons == 0 || style.Buttons > 1 { // a button opens the list of losses
		t.Errorf("got %d controls on paper and %d on the screen, want at most 1 and more", style.Buttons, before.Buttons)
	}
	expectClean(c)
}

// Nothing is animated, with or without the preference for reduced motion.
func TestNoMotion(t *testing.T) {
	c, chromium := newChromiumTab(t)
	chromium.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-reduced-motion", "value": "reduce"}},
	}, nil)
	openFlame(c, encodetest.Typical(), flame.Options{})
	c.point(boxAt(c, 0.2, 3))
	c.click(boxAt(c, 0.2, 3))
	var moving []string
	c.eval(`[...document.querySelectorAll("*")].filter((e) => {
		const style = getComputedStyle(e);
		return style.transitionDuration !== "0s" || style.animationName !== "none" || style.scrollBehavior !== "auto";
	}).map((e) => e.localName + "#" + e.id).concat(document.getAnimations().map(String))`, &moving)
	if len(moving) > 0 {
		t.Errorf("animations: %q, want none", moving)
	}
}
