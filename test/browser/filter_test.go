package browser

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// foldedOf returns the sums of stacks by their names, as in folded stacks. Stacks for which
// change returns nil are left out.
func foldedOf(stacks []stackOf, change func([]string) []string) map[string]int64 {
	sums := map[string]int64{}
	for _, s := range stacks {
		names := append([]string{fmt.Sprintf("%s-%d/%d", s.task.Comm, s.task.PID, s.task.TID)}, s.names...)
		if names = change(names); names != nil {
			sums[strings.Join(names, ";")] += s.values[0]
		}
	}
	return sums
}

// parseFolded reads folded stacks.
func parseFolded(t *testing.T, text string) map[string]int64 {
	t.Helper()
	sums := map[string]int64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "# ") { // the unit
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseInt(strings.TrimSpace(line[at+1:]), 10, 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		sums[line[:at]] += n
	}
	return sums
}

// withoutLoops removes the calls between two activations of a function.
func withoutLoops(names []string) []string {
	path := names[:1:1]
	for _, name := range names[1:] {
		if i := slices.Index(path, name); i > 0 {
			path = path[:i+1]
		} else {
			path = append(path, name)
		}
	}
	return path
}

// A page with filters is the page of the stacks that the filters leave: all of its sums,
// and the folded stacks that it saves.
func TestFilterSums(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	stacks := randomStacks(r)
	has := func(names []string, pattern string) bool {
		return slices.ContainsFunc(names, regexp.MustCompile(pattern).MatchString)
	}
	without := func(names []string, pattern string) []string {
		return append(names[:1:1], slices.DeleteFunc(slices.Clone(names[1:]), regexp.MustCompile(pattern).MatchString)...)
	}
	only := func(ok bool, names []string) []string {
		if ok {
			return names
		}
		return nil
	}
	c := newTab(t)
	openFlame(c, profileOf(stacks), flame.Options{})
	script := pageScript(c)
	key := func(name string) (key string) {
		c.eval(script(fmt.Sprintf(`load().then((data) => new Names(data).key(data.frames.name.findIndex((id) => data.strings[id] === %q)))`, name)), &key)
		return key
	}
	first := stacks[0]
	path := []string{fmt.Sprintf("%s-%d/%d", first.task.Comm, first.task.PID, first.task.TID), "f1", "f0"}
	for _, test := range []struct {
		filter string
		change func([]string) []string
	}{
		{"focus:f[12]", func(n []string) []string { return only(has(n, "f[12]"), n) }},
		{"focus:comm1", func(n []string) []string { return only(has(n, "comm1"), n) }},
		{"ignore:f[12]", func(n []string) []string { return only(!has(n, "f[12]"), n) }},
		{"focus-fn:" + key("f3"), func(n []string) []string { return only(slices.Contains(n, "f3"), n) }},
		{"hide:f[02]", func(n []string) []string { return without(n, "f[02]") }},
		{"hide-fn:" + key("f1") + "\nfocus:f4", func(n []string) []string { return only(has(n, "f4"), without(n, "^f1$")) }},
		{"recursion", withoutLoops},
		{"recursion\nhide:f0", func(n []string) []string { return without(withoutLoops(n), "f0") }},
		{"focus:f5\nhide:f5\nignore:f4", func(n []string) []string {
			return only(has(n, "f5") && !has(n, "f4"), without(n, "f5"))
		}},
		{"under:" + key(path[0]) + "." + key("f1") + "." + key("f0"), func(n []string) []string {
			return only(len(n) > 2 && slices.Equal(n[:3], path), n)
		}},
		{"under:*." + key("f1") + "." + key("f0"), func(n []string) []string {
			return only(len(n) > 2 && slices.Equal(n[1:3], path[1:]), n)
		}},
		{"ending:" + key("f0") + "." + key("f1"), func(n []string) []string {
			return only(len(n) > 2 && n[len(n)-1] == "f0" && n[len(n)-2] == "f1", n)
		}},
		{"hide:f", func(n []string) []string { return n[:1] }},
		{"focus:nothing", func([]string) []string { return nil }},
		{"hide:(\nunknown:x\nlibrary:/lib/none", func(n []string) []string { return n }},
	} {
		want := foldedOf(stacks, test.change)
		var text string
		c.eval(script(fmt.Sprintf(`load().then((data) => {
			const names = new Names(data);
			const filter = new Filters(data, new Functions(data), names);
			const shown = filter.parse(%q).reduce((d, { apply }) => apply ? apply(d) : d, data);
			return folded(shown, new Weights(shown, 0, taskFilter(data, "")), names).join("");
		})`, test.filter)), &text)
		if diff := cmp.Diff(want, parseFolded(t, text)); diff != "" {
			t.Errorf("%q (-samples +page):\n%s", test.filter, diff)
		}
		// The filtered tree is a tree like any other: all views have the sums of a page of
		// the remaining stacks.
		var rest []stackOf
		for _, s := range stacks {
			task := fmt.Sprintf("%s-%d/%d", s.task.Comm, s.task.PID, s.task.TID)
			if names := test.change(append([]string{task}, s.names...)); names != nil {
				rest = append(rest, stackOf{s.task, names[1:], s.values})
			}
		}
		var got sums
		c.eval(script(strings.Replace(fmt.Sprintf(pageSums, 1, "p.2"), "load().then((data) => {", fmt.Sprintf(`load().then((all) => {
			const data = new Filters(all, new Functions(all), new Names(all)).parse(%q).reduce((d, { apply }) => apply ? apply(d) : d, all);`,
			test.filter), 1)), &got)
		if diff := cmp.Diff(sumOf([2][]stackOf{rest}, 1, func(task profile.Task) bool { return task.PID == 2 }), got); diff != "" {
			t.Errorf("sums with %q (-samples +page):\n%s", test.filter, diff)
		}
	}
	expectClean(c)
}

// Filters are chosen in the panel, by keys and in the menu; each is a chip that can be
// removed. The address restores them, and exports have them.
func TestFilters(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	save := c.downloads()
	c.until(`document.querySelector("#filters").hidden`)

	c.click(boxAt(c, 0.2, 4)) // handle
	c.press("F")
	expectList(c, "#chips span", "only stacks with http::Server::handle(http::Request const&)")
	expect(c, "#share", "51.0% of all")
	c.press("Escape", "Escape")
	c.point(boxAt(c, 0.5, 0))
	expectContains(c, "#tip dl", "51 (100%)")
	for stack := range parseFolded(t, save("#save-folded")) {
		if !strings.Contains(stack, "http::Server::handle") {
			t.Errorf("folded stacks of a filtered page have %q", stack)
		}
	}
	if svg := save("#save-svg"); strings.Contains(svg, "worker_thread") || !strings.Contains(svg, "parse") {
		t.Errorf("the picture does not follow the filter: %s", svg)
	}

	c.press("/")
	c.write("peek|parse")
	c.eval(`((menu) => {
		menu.value = "hide:peek|parse";
		menu.dispatchEvent(new Event("change"));
		return 0;
	})(document.querySelector("#filter"))`, new(int))
	expectList(c, "#chips span", "only stacks with http::Server::handle(http::Request const&)", "peek|parse hidden")
	c.press("Escape", "t")
	expectList(c, "#rows tr:first-child th", "http::Server::handle(http::Request const&)")
	expectContains(c, "#rows tr:first-child", "4282.4%")
	state := address(c)
	c.openAgain()
	c.until(`document.documentElement?.dataset.ready && document.querySelector("#rows th")`)
	if again := address(c); again != state {
		t.Errorf("the address %q became %q when loaded", state, again)
	}
	expectContains(c, "#rows tr:first-child", "4282.4%")
	c.press("f")
	c.picture("filters")
	c.clickOn("#chips li:first-child button")
	expectList(c, "#chips span", "peek|parse hidden")
	expect(c, "#share", "100% of all")
	c.eval(`history.back(), 0`, new(int))
	c.until(`document.querySelectorAll("#chips li").length === 2`)
	c.clickOn("#unfilter")
	c.until(`document.querySelector("#filters").hidden`)

	// Recursion: walk calls itself three times in nine stacks.
	c.press("R", "/")
	c.write("^walk$")
	c.press("Enter")
	expect(c, announced, "walk: 6 samples, 6.00%")
	expectContains(c, "#details", "Self6 (6.00%)", "All occurrencesTotal9 (9.00%)Own9 (9.00%)")
	c.press("U")
	c.until(`document.querySelector("#filters").hidden`)
	expect(c, "#details h2", "walk")
	c.press("Escape", "Escape")
	expectContains(c, "#details", "Hottest functions")

	// A library is one box.
	c.click(boxAt(c, 0.2, 4)) // handle
	c.press("L")
	expectList(c, "#chips span", "server collapsed")
	c.click(boxAt(c, 0.2, 3))
	expect(c, "#details h2", "server")
	expectContains(c, "#details", "KindUser", "Samples70 (70.0%)Self48 (48.0%)", "Total73 (73.0%)Own51 (51.0%)")
	c.clickOn("#unfilter")
	c.press("Escape", "Escape")

	// A subtree, in both directions.
	c.click(boxAt(c, 0.2, 4))
	c.press("K")
	expectList(c, "#chips span", "only above http::Server::handle(http::Request const&)")
	expect(c, "#share", "51.0% of all")
	c.clickOn("#unfilter")
	c.press("Escape", "Escape", "b")
	c.click(boxAt(c, 0.1, 2)) // parse, which calls peek
	c.clickOn("#details .small button:last-child")
	expectList(c, "#chips span", "only callers of std::vector<int, std::allocator<int>> parse<int>(char const*)")
	expect(c, "#share", "30.0% of all")
	c.clickOn("#unfilter")

	// No function is named so, and the address may say anything.
	c.press("f")
	for _, filter := range []string{"focus:nothing", "focus:(", "under:__proto__", "hide-fn:constructor", "__proto__:x", ":", "library:__proto__", strings.Repeat("recursion\n", 100)} {
		c.goTo(url.Values{"filter": {filter}}.Encode())
		c.until(`!document.querySelector("#filters").hidden`)
		expect(c, "html[data-ready=true] #title", "fulgur profile -F 99 10")
		c.goTo("")
		c.until(`document.querySelector("#filters").hidden`)
	}
	c.goTo("filter=focus:nothing")
	c.until(`!document.querySelector("#notice").hidden`)
	expect(c, "#notice", "No samples pass the filters.")
	expectClean(c)
}

// A graph without samples says why, in the page and in the picture.
func TestNothingLeft(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"})
	for i, name := range []string{"runs", "waits"} {
		s := b.Push(0, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})}))
		b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: 1, Comm: "x"}), CPU: -1, Values: []int64{1, int64(i)}})
	}
	c := newTab(t)
	openFlame(c, b.Profile(profile.Meta{}, profile.Losses{}), flame.Options{})
	save := c.downloads()
	check := func(want string) {
		t.Helper()
		c.until(`!document.querySelector("#notice").hidden`)
		expect(c, "#notice", want)
		if svg := save("#save-svg"); !strings.Contains(svg, want) {
			t.Errorf("the picture lacks %q: %s", want, svg)
		}
	}
	c.click(boxAt(c, 0.75, 2))
	expect(c, "#details h2", "waits")
	c.press("s", "I")
	check("No waits of this function pass the filters.")
	c.picture("nothing-left")
	c.press("U")
	c.until(`document.querySelector("#notice").hidden`)
	c.press("f")
	c.click(boxAt(c, 0.25, 2))
	c.press("s")
	choose(c, "#value", "1")
	check("This function has no off-CPU time.")
	choose(c, "#value", "0")
	c.until(`document.querySelector("#notice").hidden`)
	c.goTo("filter=focus:nothing")
	check("No waits pass the filters.")
	expectClean(c)
}

// Keys of filters that have nothing to apply to say so, for a while.
func TestFilterHints(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	for key, want := range map[string]string{
		"F": "Select a function or search first.", "I": "Select a function or search first.", "H": "Select a function or search first.",
		"L": "Select a function first.", "K": "Select a function first.",
	} {
		c.press(key)
		expect(c, "#hint", want)
	}
	c.picture("hint")
	c.click(boxAt(c, 0.2, 1)) // a process
	c.press("L")
	expect(c, "#hint", "This filter does not apply to the selected box.")
	c.until(`document.querySelector("#hint").textContent === "" && document.querySelector("#filters").hidden`)
	expectClean(c)
}

// Filters keep the selected function, if it is still there.
func TestFilterSelection(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	const handle = "http::Server::handle(http::Request const&)"
	c.press("/")
	c.write("Server::handle")
	c.press("Enter", "Escape") // leaves the search
	for range 2 {
		expectContains(c, announced, handle)
		expect(c, "#details h2", handle)
		c.press("F")
	}
	expectContains(c, announced, handle+": 51 samples, 100%")
	c.goTo("filter=" + url.QueryEscape("hide:^main$")) // one of its callers
	expectContains(c, announced, handle)
	expect(c, "#details h2", handle)
	choose(c, "#value", "1")
	expect(c, "#details h2", handle)
	c.goTo("filter=" + url.QueryEscape("ignore:Server::handle"))
	expectContains(c, "#details", "Hottest functions")
	expectClean(c)
}
