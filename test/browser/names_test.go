package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/message/shortname"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// longNames are names of functions that call each other.
var longNames = []string{
	"http::Server::handle(http::Request const&)",
	"__gnu_cxx::__ops::_Iter_comp_iter<main::{lambda(int, int)#1}>::operator()<int*, int*>",
	"app::Server::run(int)::{lambda(int)#1}::operator()(int) const",
	"<alloc::vec::Vec<T> as core::iter::Iterator>::next",
	"net/http.(*conn).serve",
	"evil::<script>::operator()<img src=x onerror=alert(1)>",
	"__proto__",
}

func longNamed() *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	var s profile.StackID
	for _, name := range longNames {
		s = b.Push(s, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})}))
	}
	b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: "net/http.server"}), CPU: -1, Values: []int64{100}})
	return b.Profile(profile.Meta{Command: "x"}, profile.Losses{})
}

// The switch for short names changes labels, path, table and exports, but neither tooltips
// nor the search, and the address restores it.
func TestShortNames(t *testing.T) {
	c := newTab(t)
	openFlame(c, longNamed(), flame.Options{})
	c.click(boxAt(c, 0.5, 3))
	expectContains(c, "#path", longNames[1])
	c.clickOn("#short")
	expect(c, "#path", "all›net/http.server›Server::handle›_Iter_comp_iter::operator() 100%")
	c.point(boxAt(c, 0.5, 4))
	expect(c, "#tip h2", longNames[2])
	expect(c, "#details h2", longNames[1])
	c.press("ArrowUp")
	expect(c, announced, "Server::run::{lambda#1}: 100 samples, 100%")
	c.picture("short-names")
	c.press("t")
	expectList(c, "#rows th", inTable(shortname.Of)...)
	c.press("a")
	expectList(c, "#rows th", inTable(func(name string) string { return name })...)
	c.press("a")
	state := address(c)
	c.openAgain()
	c.until(`document.documentElement?.dataset.ready && document.querySelector("#rows th")`)
	if again := address(c); again != state || !strings.Contains(state, "short=1") {
		t.Errorf("the address %q became %q when loaded", state, again)
	}
	expectList(c, "#rows th", inTable(shortname.Of)...)
	c.press("f", "/")
	c.write("^http::Server::handle")
	expect(c, "#matched", "100% matched")
	c.press("Escape", "/")
	c.write("^Server::handle$") // a name that is shown is found, too
	expect(c, "#matched", "100% matched")
	expectClean(c)

	openFlame(c, longNamed(), flame.Options{ShortNames: true})
	c.press("ArrowUp", "ArrowUp", "ArrowUp")
	expect(c, announced, "Server::handle: 100 samples, 100%")
	expectClean(c)
}

// inTable returns the names as shown in the table: first the leaf, then the others by name.
func inTable(shown func(string) string) []string {
	leaf := len(longNames) - 1
	names := append([]string{longNames[leaf]}, slices.Sorted(slices.Values(longNames[:leaf]))...)
	for i := range names {
		names[i] = shown(names[i])
	}
	return names
}

// The function's own name is the last part of a label to be cut, by the same rules as in
// pictures.
func TestLabels(t *testing.T) {
	c := newTab(t)
	openFlame(c, longNamed(), flame.Options{})
	var got map[string][]string
	c.eval(pageScript(c)(`load().then((data) => {
		const names = new Names(data);
		return Object.fromEntries([...data.tree.frame].slice(2).map((f) =>
			[names.of(f), Array.from({ length: 60 }, (_, i) => names.fit(f, i + 3))]));
	})`), &got)
	for _, name := range longNames[:6] {
		for i, label := range got[name] {
			if want := shortname.Fit(name, i+3); label != want {
				t.Errorf("%q in %d characters is %q, want %q", name, i+3, label, want)
			}
		}
		if len(got[name]) != 60 {
			t.Errorf("%q has %d labels, want 60", name, len(got[name]))
		}
	}
	expectClean(c)
}

// The panel can be widened with the pointer and with keys, and the address restores it.
func TestPanelWidth(t *testing.T) {
	c := newTab(t)
	openFlame(c, longNamed(), flame.Options{})
	width := func() (n int) {
		c.eval(`document.querySelector("#details").offsetWidth`, &n)
		return n
	}
	before := width()
	var edge [2]float64
	c.eval(`(({ left, top, width, height }) => [left + width / 2, top + height / 2])(document.querySelector("#edge").getBoundingClientRect())`, &edge)
	c.point(edge[0], edge[1])
	c.pointer(press, edge[0], edge[1])
	c.point(edge[0]-100, edge[1])
	c.until(`document.querySelector("#details").offsetWidth > 360`)
	c.point(edge[0]-250, edge[1])
	c.pointer(release, edge[0]-250, edge[1])
	if wide := width(); wide < before+249 || wide > before+251 {
		t.Errorf("the panel was %d pixels wide and is %d, want 250 more", before, wide)
	}
	c.point(edge[0]-100, edge[1]) // not dragged any more
	wide := width()
	c.openAgain()
	c.until(`document.documentElement?.dataset.ready`)
	if again := width(); again != wide {
		t.Errorf("the panel was %d pixels wide and is %d after loading again", wide, again)
	}
	c.eval(`(document.querySelector("#edge").focus(), 0)`, new(int))
	c.press("ArrowRight", "ArrowRight")
	if again := width(); again != wide-40 {
		t.Errorf("the panel was %d pixels wide and is %d after two keys, want 40 less", wide, again)
	}
	c.picture("wide-panel")
	c.goTo("panel=1e9")
	c.until(`document.querySelector("#details").offsetWidth > 500`)
	var room bool
	c.eval(`document.querySelector("#chart").clientWidth > 100`, &room)
	if !room {
		t.Error("a panel of any width leaves no room for the graph")
	}
	expectClean(c)
}

// The controls fit into one line of a laptop's window, which leaves most of its height to the
// graph, and the table's columns of short texts do not wrap.
func TestCompact(t *testing.T) {
	line := twoThreads(t)
	line.Profile.Tasks = append(line.Profile.Tasks, profile.Task{TID: 1}) // by thread
	c := newTab(t)
	c.resize(1280, 720, 1)
	openFlame(c, line.Profile, flame.Options{Times: line, Listings: "code"})
	c.until(`!document.querySelector("#task").hidden && !document.querySelector("#views [value=code]").hidden`)
	for _, key := range []string{"f", "o"} {
		c.press(key)
		var places []int
		c.eval(`["#views", "#help-button"].map((id) => document.querySelector(id).getBoundingClientRect()).map(({ top, height }) => Math.round(top + height / 2))`, &places)
		if places[1] > places[0]+8 {
			t.Errorf("key %s: the middle of the first control is at %d, of the last at %d, want them in one line", key, places[0], places[1])
		}
		c.picture("controls-" + key)
	}
	for _, page := range []struct {
		name string
		rows int
	}{{"recording", 29}, {"profile", 34}} {
		if page.name == "profile" {
			openFlame(c, encodetest.Typical(), flame.Options{})
		}
		var rows int
		c.eval(fmt.Sprintf(`Math.floor((document.querySelector("#scroller").clientHeight - %d) / %d)`, 2*edge, rowHeight), &rows)
		if rows < page.rows {
			t.Errorf("%d rows of a %s are visible, want %d", rows, page.name, page.rows)
		}
	}
	c.resize(700, 800, 1)
	openFlame(c, encodetest.Typical(), flame.Options{})
	c.press("t")
	var wrapped []string
	c.eval(`[...document.querySelectorAll("#rows td:last-child")].filter((cell) => {
		const text = document.createRange();
		text.selectNodeContents(cell);
		return text.getClientRects().length > 1;
	}).map((cell) => cell.textContent)`, &wrapped)
	if len(wrapped) > 0 {
		t.Errorf("the kinds %q wrap", wrapped)
	}
	c.picture("table-rows")
	expectClean(c)
}
