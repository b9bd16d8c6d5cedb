// Package browser tests the pages that fulgur writes in real browsers, with real pointer
// and key events.
package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// stepTimeout is the time limit of each step.
var stepTimeout = testenv.TimeLimit()

// viewport is the size of a new page, in CSS pixels.
var viewport = struct{ width, height int }{1280, 800}

// A driver controls a page in a browser, by the browser's protocol. Its methods end the test
// if the browser reports an error.
type driver interface {
	// evaluate returns the value of a JavaScript expression, or of the promise that it
	// is, as JSON.
	evaluate(expression string) json.RawMessage
	// navigate begins to open a document, and reload to load the current one again.
	navigate(url string)
	reload()
	// loads returns how many documents the page has loaded so far, without its frames.
	loads() int
	// pointer moves the pointer, presses its button or releases it.
	pointer(action pointerAction, x, y float64)
	// keys presses and releases keys one after the other, all of them with Shift or none.
	// A key is a name in namedKeys or a single character.
	keys(shift bool, keys ...string)
	// resize changes the viewport, in CSS pixels of scale device pixels.
	resize(width, height int, scale float64)
	// saveTo makes the page save files into dir.
	saveTo(dir string)
	// saved returns how many files the page has saved completely.
	saved() int
	// screenshot returns a picture of the viewport as PNG.
	screenshot() []byte
	// complaints returns what scripts logged or threw, what was blocked, and dialogs.
	complaints() []string
	// requests returns the requests of the page and of its frames.
	requests() []request
}

// request is a request that a page sent.
type request struct {
	url      string
	document bool // not a part of a document, such as an image
}

type pointerAction int

const (
	move pointerAction = iota
	press
	release
)

// namedKey is a key that types nothing, as the protocols name it.
type namedKey struct {
	code int    // DevTools: virtual key code
	rune string // WebDriver: private character
}

var namedKeys = map[string]namedKey{
	"Enter": {13, "\ue007"}, "Escape": {27, "\ue00c"}, "Home": {36, "\ue011"},
	"ArrowLeft": {37, "\ue012"}, "ArrowUp": {38, "\ue013"}, "ArrowRight": {39, "\ue014"}, "ArrowDown": {40, "\ue015"},
}

// tab is a page that a test or benchmark uses.
type tab struct {
	driver
	t testing.TB
}

// newTab opens an empty page for the length of the test, or skips the test if there is no
// browser. It opens a page of Chromium, or of Firefox in subtests of TestInFirefox.
func newTab(t testing.TB) *tab {
	t.Helper()
	return &tab{driver: openPage(t), t: t}
}

var openPage = func(t testing.TB) driver { return openChromium(t) }

// TestInFirefox runs tests of pages in Firefox. The others need DevTools, test only what
// fulgur writes into a page, or run too long for a second time.
func TestInFirefox(t *testing.T) {
	chromium := openPage
	openPage = func(t testing.TB) driver { return openFirefox(t) }
	t.Cleanup(func() { openPage = chromium })
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"FlamePage", TestFlamePage},
		{"FlameChart", TestFlameChart},
		{"Times", TestTimes},
		{"HeatColors", TestHeatColors},
		{"HeatOfFilters", TestHeatOfFilters},
		{"TimesFromFirefox", TestTimesFromFirefox},
		{"NarrowTimes", TestNarrowTimes},
		{"Filters", TestFilters},
		{"NothingLeft", TestNothingLeft},
		{"FilterHints", TestFilterHints},
		{"FilterSelection", TestFilterSelection},
		{"Save", TestSave},
		{"SavePprof", TestSavePprof},
		{"SaveShown", TestSaveShown},
		{"SavePNG", TestSavePNG},
		{"ContextMenu", TestContextMenu},
		{"ManyProcesses", TestManyProcesses},
		{"Direction", TestDirection},
		{"Fold", TestFold},
		{"MissingSide", TestMissingSide},
		{"Native", TestNative},
		{"Findings", TestFindings},
		{"CtrlC", TestCtrlC},
		{"CtrlF", TestCtrlF},
		{"DeepStack", TestDeepStack},
		{"IdleThreads", TestIdleThreads},
		{"HostileNames", TestHostileNames},
		{"Policy", TestPolicy},
		{"Threads", TestThreads},
		{"Compare", TestCompare},
		{"LargePage", TestLargePage},
		{"NarrowPage", TestNarrowPage},
		{"LowPage", TestLowPage},
		{"EmptyPage", TestEmptyPage},
		{"DamagedPage", TestDamagedPage},
		{"LivePage", TestLivePage},
		{"View", TestView},
		{"Places", TestPlaces},
		{"PictureScript", TestPictureScript},
		{"HottestOfWaits", TestHottestOfWaits},
		{"Summary", TestSummary},
		{"NarrowHits", TestNarrowHits},
		{"ScrollToHit", TestScrollToHit},
		{"Highlight", TestHighlight},
		{"ShortNames", TestShortNames},
		{"Compact", TestCompact},
		{"Labels", TestLabels},
		{"PanelWidth", TestPanelWidth},
		{"Syntax", TestSyntax},
	} {
		t.Run(test.name, test.run)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	stopChromium()
	stopFirefox()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	os.Exit(code)
}

// built is fulgur's path, once a test has called program. It is not always in builtDir:
// without a compiler, fulgur comes from PATH.
var built, builtDir string

// program returns the path of fulgur. The first call builds it.
func program(t *testing.T) string {
	t.Helper()
	if built == "" {
		var err error
		builtDir, err = os.MkdirTemp("", "fulgur-browser-") //nolint:usetesting // it is for all tests
		if err != nil {
			t.Fatal(err)
		}
		built = testenv.Program(t, "fulgur/cmd/fulgur", builtDir)
	}
	return built
}

// eval runs an expression in the page and stores its value in result.
func (c *tab) eval(expression string, result any) {
	c.t.Helper()
	if err := json.Unmarshal(c.evaluate(expression), result); err != nil {
		c.t.Fatalf("%s: %v", expression, err)
	}
}

// text returns the text of the first element that selector matches.
func (c *tab) text(selector string) (text string) {
	c.t.Helper()
	c.eval(fmt.Sprintf("document.querySelector(%q).textContent", selector), &text)
	return text
}

// until waits for a condition in the page.
func (c *tab) until(condition string) {
	c.t.Helper()
	c.waitFor(func() (ok bool) {
		c.eval("Boolean("+condition+")", &ok)
		return ok
	}, condition)
}

// waitFor waits for a condition. what describes it.
func (c *tab) waitFor(condition func() bool, what string) {
	c.t.Helper()
	testenv.Await(c.t, condition, func() string { return "waited for " + what })
}

// awaitLoad waits until the document that act opens has replaced the current one. Otherwise a
// condition could hold in the old document, and the next step be lost with it.
func (c *tab) awaitLoad(act func()) {
	c.t.Helper()
	before := c.loads()
	act()
	c.waitFor(func() bool { return c.loads() > before }, "the end of loading")
}

// open opens a document.
func (c *tab) open(url string) {
	c.t.Helper()
	c.awaitLoad(func() { c.navigate(url) })
}

// openAgain loads the document again.
func (c *tab) openAgain() {
	c.t.Helper()
	c.awaitLoad(c.reload)
}

// goTo changes the part of the address after "#", and waits until the page has handled the
// change.
func (c *tab) goTo(hash string) {
	c.t.Helper()
	c.eval(fmt.Sprintf(`new Promise((done) => {
		const before = location.hash;
		addEventListener("hashchange", () => setTimeout(done, 0, 0), { once: true });
		location.hash = %q;
		if (location.hash === before) done(0);
	})`, hash), new(int))
}

// downloads makes the tab save files into a directory of the test. It returns a function
// that clicks on an element and returns the text of the file that this saves.
func (c *tab) downloads() func(selector string) string {
	c.t.Helper()
	dir := c.t.TempDir()
	c.saveTo(dir)
	// Chromium drops the downloads of a page beyond ten in a second.
	const few, enough = 8, 1100 * time.Millisecond
	clicks := 0
	return func(selector string) string {
		c.t.Helper()
		if clicks++; clicks%few == 0 {
			time.Sleep(enough)
		}
		before := c.saved()
		c.clickOn(selector)
		c.waitFor(func() bool { return c.saved() > before }, "the end of a download")
		// The browser may think that an earlier file still has the name.
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 1 {
			c.t.Fatalf("files downloaded: %v, %v, want one", files, err)
		}
		path := filepath.Join(dir, files[0].Name())
		text, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			c.t.Fatal(err)
		}
		return string(text)
	}
}

// point moves the pointer.
func (c *tab) point(x, y float64) {
	c.t.Helper()
	c.pointer(move, x, y)
}

// click presses and releases the pointer's button.
func (c *tab) click(x, y float64) {
	c.t.Helper()
	c.point(x, y)
	c.pointer(press, x, y)
	c.pointer(release, x, y)
}

// clickOn scrolls the first element that selector matches into view, and clicks its
// center. If the element is in a popup, it opens that before, and closes it afterwards.
func (c *tab) clickOn(selector string) {
	c.t.Helper()
	var opener string
	c.eval(fmt.Sprintf(`((popup) => popup?.hidden ? "[aria-controls=" + popup.id + "]" : "")(document.querySelector(%q).closest(".popup"))`, selector), &opener)
	if opener != "" {
		c.clickOn(opener)
		defer func() {
			var open bool
			c.eval(fmt.Sprintf(`document.querySelector(%q).getAttribute("aria-expanded") === "true"`, opener), &open)
			if open {
				c.clickOn(opener)
			}
		}()
	}
	var at [2]float64
	c.eval(fmt.Sprintf(`((element) => {
		element.scrollIntoView({ block: "nearest" });
		const { left, top, width, height } = element.getBoundingClientRect();
		return [left + width / 2, top + height / 2];
	})(document.querySelector(%q))`, selector), &at)
	c.click(at[0], at[1])
}

// press presses and releases keys: names of namedKeys, or single characters.
func (c *tab) press(keys ...string) {
	c.t.Helper()
	c.keys(false, keys...)
}

// write types text.
func (c *tab) write(text string) {
	c.t.Helper()
	c.press(strings.Split(text, "")...)
}

// picture stores a screenshot of the page in the directory given by the environment
// variable FULGUR_SCREENSHOTS, if it is set.
func (c *tab) picture(name string) {
	c.t.Helper()
	dir := os.Getenv("FULGUR_SCREENSHOTS")
	if dir == "" {
		return
	}
	if strings.HasPrefix(c.t.Name(), "TestInFirefox/") {
		name = "firefox-" + name
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), c.screenshot(), 0o644); err != nil {
		c.t.Fatal(err)
	}
}
