package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"fulgur/internal/testenv"
)

// chromium is a headless browser that the tests control by the DevTools protocol over a
// pair of pipes: JSON messages that end in a zero byte.
type chromium struct {
	cmd *exec.Cmd
	dir string
	out io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan devtoolsReply
	// events are the protocol's events so far, oldest first.
	events []devtoolsEvent
}

// devtools is a page of Chromium.
type devtools struct {
	*chromium
	t       testing.TB
	session string // empty: the browser itself
	pressed bool   // the pointer's button
	closed  bool
}

type devtoolsReply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

type devtoolsEvent struct {
	SessionID string
	Method    string
	Params    json.RawMessage
}

// sharedChromium is the Chromium of all tests; the first that needs one starts it.
var sharedChromium *chromium

// stopChromium closes the browser's pipe, which ends the browser, and removes its files.
func stopChromium() {
	b := sharedChromium
	if b == nil {
		return
	}
	b.out.Close()
	_ = b.cmd.Wait() // its exit code does not depend on the pages
	os.RemoveAll(b.dir)
}

// startChromium runs a browser.
func startChromium(path string) (*chromium, error) {
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
	b := &chromium{dir: dir, out: out, waiting: map[int]chan devtoolsReply{}}
	b.cmd = exec.Command(path,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--lang=en-US", fmt.Sprintf("--window-size=%d,%d", viewport.width, viewport.height),
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

// openChromium opens an empty page for the length of the test, or skips the test if
// Chromium is not installed.
func openChromium(t testing.TB) *devtools {
	t.Helper()
	path := testenv.Tool(t, "chromium")
	if sharedChromium == nil {
		b, err := startChromium(path)
		if err != nil {
			t.Fatal(err)
		}
		sharedChromium = b
	}
	d := &devtools{chromium: sharedChromium, t: t}
	var target struct{ TargetID string }
	d.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	d.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	d.session = attached.SessionID
	t.Cleanup(d.close)
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		d.call(domain+".enable", nil, nil)
	}
	return d
}

// close closes the page, unless it is closed.
func (d *devtools) close() {
	if !d.closed {
		d.closed = true
		d.call("Page.close", nil, nil)
	}
}

// newChromiumTab is newTab for tests that need DevTools.
func newChromiumTab(t testing.TB) (*tab, *devtools) {
	t.Helper()
	d := openChromium(t)
	return &tab{driver: d, t: t}, d
}

// read delivers the browser's messages until the browser closes its end.
func (b *chromium) read(in io.ReadCloser) {
	defer in.Close()
	messages := bufio.NewReader(in)
	for {
		text, err := messages.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID int
			devtoolsEvent
			devtoolsReply
		}
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			panic(fmt.Sprintf("message from the browser: %v", err))
		}
		b.mu.Lock()
		if m.ID == 0 {
			b.events = append(b.events, m.devtoolsEvent)
		} else {
			b.waiting[m.ID] <- m.devtoolsReply
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
	}
}

// call runs a method of the protocol, and stores its result if result is not nil.
func (d *devtools) call(method string, params, result any) {
	d.t.Helper()
	if params == nil {
		params = struct{}{}
	}
	answer := make(chan devtoolsReply, 1)
	d.mu.Lock()
	d.last++
	id := d.last
	d.waiting[id] = answer
	d.mu.Unlock()
	message, err := json.Marshal(struct {
		ID        int    `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
		SessionID string `json:"sessionId,omitempty"`
	}{id, method, params, d.session})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.out.Write(append(message, 0)); err != nil {
		d.t.Fatalf("%s: %v", method, err)
	}
	r := testenv.Receive(d.t, answer, method+": no answer from the browser")
	if r.Error != nil {
		d.t.Fatalf("%s: %s", method, r.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(r.Result, result); err != nil {
			d.t.Fatalf("%s: %v", method, err)
		}
	}
}

// seen returns the page's events of one method so far.
func (d *devtools) seen(method string) []devtoolsEvent {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []devtoolsEvent
	for _, e := range d.events {
		if e.SessionID == d.session && e.Method == method {
			found = append(found, e)
		}
	}
	return found
}

func (d *devtools) evaluate(expression string) json.RawMessage {
	d.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	d.call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true, "allowUnsafeEvalBlockedByCSP": false,
	}, &r)
	if r.ExceptionDetails != nil {
		d.t.Fatalf("%s: %s %s", expression, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	return r.Result.Value
}

func (d *devtools) navigate(url string) {
	d.t.Helper()
	d.call("Page.navigate", map[string]any{"url": url}, nil)
}

func (d *devtools) reload() {
	d.t.Helper()
	d.call("Page.reload", nil, nil)
}

func (d *devtools) loads() int { return len(d.seen("Page.loadEventFired")) }

func (d *devtools) pointer(action pointerAction, x, y float64) {
	d.t.Helper()
	params := map[string]any{"x": x, "y": y}
	switch action {
	case move:
		params["type"] = "mouseMoved"
	case press:
		params["type"], d.pressed = "mousePressed", true
	case release:
		params["type"] = "mouseReleased"
	}
	if d.pressed {
		params["clickCount"], params["button"] = 1, "left"
	}
	d.pressed = d.pressed && action != release
	d.call("Input.dispatchMouseEvent", params, nil)
}

func (d *devtools) keys(shift bool, keys ...string) {
	d.t.Helper()
	for _, key := range keys {
		params := map[string]any{"type": "keyDown", "key": key}
		if named, ok := namedKeys[key]; ok {
			params["windowsVirtualKeyCode"] = named.code
		} else {
			params["text"] = key
		}
		if shift {
			params["modifiers"] = 8
		}
		d.call("Input.dispatchKeyEvent", params, nil)
		params["type"] = "keyUp"
		delete(params, "text")
		d.call("Input.dispatchKeyEvent", params, nil)
	}
}

func (d *devtools) resize(width, height int, scale float64) {
	d.t.Helper()
	d.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": scale, "mobile": false,
	}, nil)
}

func (d *devtools) saveTo(dir string) {
	d.t.Helper()
	d.call("Page.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir}, nil)
}

func (d *devtools) saved() int {
	completed := map[string]bool{}
	for _, e := range d.seen("Page.downloadProgress") {
		var progress struct{ GUID, State string }
		if json.Unmarshal(e.Params, &progress) == nil && progress.State == "completed" {
			completed[progress.GUID] = true
		}
	}
	return len(completed)
}

func (d *devtools) screenshot() []byte {
	d.t.Helper()
	var shot struct{ Data []byte }
	d.call("Page.captureScreenshot", nil, &shot)
	return shot.Data
}

func (d *devtools) complaints() (all []string) {
	for _, method := range []string{
		"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening",
	} {
		for _, e := range d.seen(method) {
			all = append(all, fmt.Sprintf("%s: %s", method, e.Params))
		}
	}
	return all
}

func (d *devtools) requests() (all []request) {
	d.t.Helper()
	for _, e := range d.seen("Network.requestWillBeSent") {
		var r struct {
			Type    string
			Request struct{ URL string }
		}
		if err := json.Unmarshal(e.Params, &r); err != nil {
			d.t.Fatal(err)
		}
		all = append(all, request{r.Request.URL, r.Type == "Document"})
	}
	return all
}
