// Package browser tests the pages that fulgur writes in a real browser, with
// real pointer and key events.
package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// stepTimeout is the time limit of each step.
const stepTimeout = time.Minute

// browser is a headless browser that the tests control by the DevTools protocol over a
// pair of pipes: JSON messages that end in a zero byte.
type browser struct {
	cmd *exec.Cmd
	dir string
	out io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	// events are the protocol events so far, oldest first.
	events []event
}

// tab is a page of the browser, used by one test or benchmark. The zero session is the
// browser itself.
type tab struct {
	*browser
	t       testing.TB
	session string
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

type event struct {
	SessionID string
	Method    string
	Params    json.RawMessage
}

// shared is the browser of all tests; the first that needs one starts it.
var shared *browser

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.stop()
	}
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

// start runs a browser with a window of 1280 by 800 pixels.
func start(path string) (*browser, error) {
	dir, err := os.MkdirTemp("", "fulgur-browser-")
	if err != nil {
		return nil, err
	}
	commands, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in, replies, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &browser{dir: dir, out: out, waiting: map[int]chan reply{}}
	b.cmd = exec.Command(path,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--lang=en-US", "--window-size=1280,800",
		"--user-data-dir="+dir, "--remote-debugging-pipe")
	b.cmd.ExtraFiles = []*os.File{commands, replies} // it reads 3 and writes 4
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	commands.Close()
	replies.Close()
	go b.read(in)
	return b, nil
}

// stop closes the browser's pipe, which ends the browser, and removes its files.
func (b *browser) stop() {
	b.out.Close()
	_ = b.cmd.Wait() // its exit code does not depend on the pages
	os.RemoveAll(b.dir)
}

// newTab opens an empty page for the length of the test, or skips the test if
// there is no browser.
func newTab(t testing.TB) *tab {
	t.Helper()
	path := testenv.Tool(t, "chromium")
	if shared == nil {
		b, err := start(path)
		if err != nil {
			t.Fatal(err)
		}
		shared = b
	}
	c := &tab{browser: shared, t: t}
	var target struct{ TargetID string }
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	c.session = attached.SessionID
	t.Cleanup(func() { c.call("Page.close", nil, nil) })
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		c.call(domain+".enable", nil, nil)
	}
	return c
}

// read delivers the browser's messages until the browser closes its end.
func (b *browser) read(in io.ReadCloser) {
	defer in.Close()
	messages := bufio.NewReader(in)
	for {
		text, err := messages.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID int
			event
			reply
		}
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			panic(fmt.Sprintf("message from the browser: %v", err))
		}
		b.mu.Lock()
		if m.ID == 0 {
			b.events = append(b.events, m.event)
		} else {
			b.waiting[m.ID] <- m.reply
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
	}
}

// call runs a method of the protocol, and stores its result if result is not nil.
func (c *tab) call(method string, params, result any) {
	c.t.Helper()
	if params == nil {
		params = struct{}{}
	}
	answer := make(chan reply, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = answer
	c.mu.Unlock()
	message, err := json.Marshal(struct {
		ID        int    `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{id, method, params, c.session})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.out.Write(append(message, 0)); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			c.t.Fatalf("%s: %s", method, r.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(r.Result, result); err != nil {
				c.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(stepTimeout):
		c.t.Fatalf("%s: no answer from the browser", method)
	}
}

// seen returns the tab's events of one method so far.
func (c *tab) seen(method string) []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []event
	for _, e := range c.events {
		if e.SessionID == c.session && e.Method == method {
			found = append(found, e)
		}
	}
	return found
}

// eval runs an expression in the page and stores its value in result.
func (c *tab) eval(expression string, result any) {
	c.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	c.call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true, "allowUnsafeEvalBlockedByCSP": false,
	}, &r)
	if r.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s %s", expression, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	if err := json.Unmarshal(r.Result.Value, result); err != nil {
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

// loads waits until the document that act opens has replaced the current one. Otherwise a
// condition could hold in the old document, and the next step be lost with it.
func (c *tab) loads(act func()) {
	c.t.Helper()
	const event = "Page.loadEventFired"
	before := len(c.seen(event))
	act()
	c.waitFor(func() bool { return len(c.seen(event)) > before }, "the end of loading")
}

// navigate opens a document.
func (c *tab) navigate(url string) {
	c.t.Helper()
	c.loads(func() { c.call("Page.navigate", map[string]any{"url": url}, nil) })
}

// reload loads the document again.
func (c *tab) reload() {
	c.t.Helper()
	c.loads(func() { c.call("Page.reload", nil, nil) })
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
	c.call("Page.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir}, nil)
	return func(selector string) string {
		c.t.Helper()
		count := len(c.seen("Page.downloadWillBegin"))
		c.clickOn(selector)
		var download struct{ GUID, SuggestedFilename string }
		c.waitFor(func() bool {
			begun := c.seen("Page.downloadWillBegin")
			return len(begun) > count && json.Unmarshal(begun[count].Params, &download) == nil
		}, "the start of a download")
		c.waitFor(func() bool {
			return slices.ContainsFunc(c.seen("Page.downloadProgress"), func(e event) bool {
				var progress struct{ GUID, State string }
				return json.Unmarshal(e.Params, &progress) == nil && progress.GUID == download.GUID && progress.State == "completed"
			})
		}, "the end of a download")
		// The browser may think that an earlier file still has the name.
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 1 {
			c.t.Fatalf("files downloaded as %s: %v, %v, want one", download.SuggestedFilename, files, err)
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

// waitFor waits for a condition. what describes it.
func (c *tab) waitFor(condition func() bool, what string) {
	c.t.Helper()
	for deadline := time.Now().Add(stepTimeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("timeout: waited for %s", what)
		}
	}
}

func (c *tab) mouse(kind string, x, y float64, clicks int) {
	c.t.Helper()
	params := map[string]any{"type": kind, "x": x, "y": y, "clickCount": clicks}
	if clicks > 0 {
		params["button"] = "left"
	}
	c.call("Input.dispatchMouseEvent", params, nil)
}

// point moves the pointer.
func (c *tab) point(x, y float64) {
	c.t.Helper()
	c.mouse("mouseMoved", x, y, 0)
}

// click presses and releases the pointer's button.
func (c *tab) click(x, y float64) {
	c.t.Helper()
	c.point(x, y)
	c.mouse("mousePressed", x, y, 1)
	c.mouse("mouseReleased", x, y, 1)
}

// clickOn scrolls the first element that selector matches into view, and clicks its
// center.
func (c *tab) clickOn(selector string) {
	c.t.Helper()
	var at [2]float64
	c.eval(fmt.Sprintf(`((element) => {
		element.scrollIntoView({ block: "nearest" });
		const { left, top, width, height } = element.getBoundingClientRect();
		return [left + width / 2, top + height / 2];
	})(document.querySelector(%q))`, selector), &at)
	c.click(at[0], at[1])
}

// keyCodes are the virtual key codes that the browser needs in addition to the names of
// keys that type nothing.
var keyCodes = map[string]int{
	"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
	"Home": 36,
}

// press presses and releases keys: names of keyCodes, or single characters.
func (c *tab) press(keys ...string) {
	c.t.Helper()
	for _, key := range keys {
		params := map[string]any{"type": "keyDown", "key": key}
		if code, ok := keyCodes[key]; ok {
			params["windowsVirtualKeyCode"] = code
		} else {
			params["text"] = key
		}
		c.call("Input.dispatchKeyEvent", params, nil)
		params["type"] = "keyUp"
		delete(params, "text")
		c.call("Input.dispatchKeyEvent", params, nil)
	}
}

// write types text.
func (c *tab) write(text string) {
	c.t.Helper()
	for _, r := range text {
		c.press(string(r))
	}
}

// screenshot stores a picture of the page in the directory given by the environment
// variable FULGUR_SCREENSHOTS, if it is set.
func (c *tab) screenshot(name string) {
	c.t.Helper()
	dir := os.Getenv("FULGUR_SCREENSHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data []byte }
	c.call("Page.captureScreenshot", nil, &shot)
	if err := os.WriteFile(dir+"/"+name+".png", shot.Data, 0o644); err != nil {
		c.t.Fatal(err)
	}
}
