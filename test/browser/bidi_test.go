package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"fulgur/internal/testenv"
)

// gecko is a headless Firefox that the tests control by WebDriver BiDi: JSON messages over a
// WebSocket.
type gecko struct {
	cmd    *exec.Cmd
	dir    string
	socket *websocket.Conn

	mu      sync.Mutex
	last    int
	waiting map[int]chan bidiMessage
	// events are the protocol's events so far, oldest first.
	events []bidiMessage
}

// bidi is a page of Firefox.
type bidi struct {
	*gecko
	t       testing.TB
	context string
	// first is the number of events before the page was opened.
	first int
}

// bidiMessage is a reply or an event.
type bidiMessage struct {
	Type    string // "success", "error" or "event"
	ID      int
	Result  json.RawMessage
	Error   string
	Message string // of the error
	Method  string
	Params  json.RawMessage
}

// sharedFirefox is the Firefox of all tests; the first that needs one starts it.
var sharedFirefox *gecko

// stopFirefox ends the browser and removes its files.
func stopFirefox() {
	b := sharedFirefox
	if b == nil {
		return
	}
	_ = b.socket.Close()
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	os.RemoveAll(b.dir)
}

// startFirefox runs a browser.
func startFirefox(path string) (b *gecko, err error) {
	dir, err := os.MkdirTemp("", "fulgur-browser-")
	if err != nil {
		return nil, err
	}
	const origin = "http://127.0.0.1"
	b = &gecko{dir: dir, waiting: map[int]chan bidiMessage{}}
	b.cmd = exec.Command(path, "--headless", "--no-remote", "--profile", dir,
		"--remote-debugging-port", "0", "--remote-allow-origins", origin)
	b.cmd.Env = append(os.Environ(), "HOME="+dir)
	stderr, err := b.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	sharedFirefox = b // which ends it, even if the rest fails
	address, err := listens(stderr)
	if err != nil {
		return nil, err
	}
	if b.socket, err = websocket.Dial(address+"/session", "", origin); err != nil {
		return nil, fmt.Errorf("connect to Firefox: %w", err)
	}
	b.socket.MaxPayloadBytes = 256 << 20 // 0: 32 MB, which a picture may exceed
	go b.read()
	return b, nil
}

// listens returns the address that Firefox prints, and discards what it prints later.
func listens(stderr io.Reader) (address string, err error) {
	found := make(chan string, 1)
	go func() {
		defer close(found)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := regexp.MustCompile(`WebDriver BiDi listening on (ws://\S+)`).FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
				_, _ = io.Copy(io.Discard, stderr)
			}
		}
	}()
	select {
	case address = <-found:
	case <-time.After(stepTimeout):
	}
	if address == "" {
		return "", errors.New("Firefox did not print the address at which it listens")
	}
	return address, nil
}

// openFirefox opens an empty page for the length of the test, or skips the test if Firefox
// is not installed.
func openFirefox(t testing.TB) *bidi {
	t.Helper()
	path := testenv.Tool(t, "firefox-esr")
	if sharedFirefox == nil {
		b, err := startFirefox(path)
		if err != nil {
			t.Fatal(err)
		}
		p := &bidi{gecko: b, t: t}
		p.call("session.new", map[string]any{"capabilities": struct{}{}}, nil)
		p.call("session.subscribe", map[string]any{"events": []string{
			"browsingContext.load", "browsingContext.contextCreated", "browsingContext.userPromptOpened",
			"browsingContext.downloadEnd", "log.entryAdded", "network.beforeRequestSent",
		}}, nil)
	}
	p := &bidi{gecko: sharedFirefox, t: t}
	p.mu.Lock()
	p.first = len(p.events)
	p.mu.Unlock()
	var created struct{ Context string }
	p.call("browsingContext.create", map[string]any{"type": "tab"}, &created)
	p.context = created.Context
	t.Cleanup(func() { p.call("browsingContext.close", map[string]any{"context": p.context}, nil) })
	p.resize(viewport.width, viewport.height, 1)
	return p
}

// read delivers the browser's messages until the connection ends.
func (b *gecko) read() {
	for {
		var m bidiMessage
		if err := websocket.JSON.Receive(b.socket, &m); err != nil {
			return
		}
		b.mu.Lock()
		if m.Type == "event" {
			b.events = append(b.events, m)
		} else {
			b.waiting[m.ID] <- m
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
	}
}

// call runs a command of the protocol, and stores its result if result is not nil.
func (p *bidi) call(method string, params map[string]any, result any) {
	p.t.Helper()
	answer := make(chan bidiMessage, 1)
	p.mu.Lock()
	p.last++
	id := p.last
	p.waiting[id] = answer
	p.mu.Unlock()
	if err := websocket.JSON.Send(p.socket, map[string]any{"id": id, "method": method, "params": params}); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	m := testenv.Receive(p.t, answer, method+": no answer from the browser")
	if m.Type == "error" {
		p.t.Fatalf("%s: %s: %s", method, m.Error, m.Message)
	}
	if result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			p.t.Fatalf("%s: %v", method, err)
		}
	}
}

// each calls see with the events of the page and of its frames so far. context is the one of
// the event.
func (p *bidi) each(see func(method, context string, params json.RawMessage)) {
	p.mu.Lock()
	events := p.events[p.first:]
	p.mu.Unlock()
	own := map[string]bool{p.context: true}
	for _, e := range events {
		var of struct {
			Context, Parent string
			Source          struct{ Context string } // of log entries
		}
		if err := json.Unmarshal(e.Params, &of); err != nil {
			p.t.Fatalf("%s: %v", e.Method, err)
		}
		context := of.Context + of.Source.Context
		own[context] = own[context] || own[of.Parent]
		if own[context] {
			see(e.Method, context, e.Params)
		}
	}
}

func (p *bidi) evaluate(expression string) json.RawMessage {
	p.t.Helper()
	var r struct {
		Result           struct{ Value string }
		ExceptionDetails *struct{ Text string }
	}
	p.call("script.evaluate", map[string]any{
		"expression":   "(async () => JSON.stringify(await (" + expression + ")))()",
		"target":       map[string]string{"context": p.context},
		"awaitPromise": true,
	}, &r)
	if r.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s", expression, r.ExceptionDetails.Text)
	}
	return json.RawMessage(r.Result.Value)
}

func (p *bidi) navigate(url string) {
	p.t.Helper()
	p.call("browsingContext.navigate", map[string]any{"context": p.context, "url": url, "wait": "none"}, nil)
}

func (p *bidi) reload() {
	p.t.Helper()
	p.call("browsingContext.reload", map[string]any{"context": p.context, "wait": "none"}, nil)
}

func (p *bidi) loads() (count int) {
	p.each(func(method, context string, _ json.RawMessage) {
		if method == "browsingContext.load" && context == p.context {
			count++
		}
	})
	return count
}

// act performs actions of one input device.
func (p *bidi) act(device string, actions ...map[string]any) {
	p.t.Helper()
	source := map[string]any{"type": device, "id": device, "actions": actions}
	p.call("input.performActions", map[string]any{"context": p.context, "actions": []any{source}}, nil)
}

func (p *bidi) pointer(action pointerAction, x, y float64) {
	p.t.Helper()
	actions := []map[string]any{{"type": "pointerMove", "x": x, "y": y}}
	switch action {
	case press:
		actions = append(actions, map[string]any{"type": "pointerDown", "button": 0})
	case release:
		actions = append(actions, map[string]any{"type": "pointerUp", "button": 0})
	}
	p.act("pointer", actions...)
}

func (p *bidi) keys(shift bool, keys ...string) {
	p.t.Helper()
	var actions []map[string]any
	add := func(action, key string) {
		actions = append(actions, map[string]any{"type": action, "value": key})
	}
	const shiftKey = "\ue008"
	if shift {
		add("keyDown", shiftKey)
	}
	for _, key := range keys {
		if named, ok := namedKeys[key]; ok {
			key = named.rune
		}
		add("keyDown", key)
		add("keyUp", key)
	}
	if shift {
		add("keyUp", shiftKey)
	}
	p.act("key", actions...)
}

func (p *bidi) resize(width, height int, scale float64) {
	p.t.Helper()
	p.call("browsingContext.setViewport", map[string]any{
		"context": p.context, "viewport": map[string]int{"width": width, "height": height}, "devicePixelRatio": scale,
	}, nil)
}

func (p *bidi) saveTo(dir string) {
	p.t.Helper()
	p.call("browser.setDownloadBehavior", map[string]any{
		"downloadBehavior": map[string]string{"type": "allowed", "destinationFolder": dir},
	}, nil)
}

func (p *bidi) saved() (count int) {
	p.each(func(method, _ string, params json.RawMessage) {
		var end struct{ Status string }
		if method == "browsingContext.downloadEnd" && json.Unmarshal(params, &end) == nil && end.Status == "complete" {
			count++
		}
	})
	return count
}

func (p *bidi) screenshot() []byte {
	p.t.Helper()
	var shot struct{ Data []byte }
	p.call("browsingContext.captureScreenshot", map[string]any{"context": p.context}, &shot)
	return shot.Data
}

func (p *bidi) complaints() (all []string) {
	p.each(func(method, _ string, params json.RawMessage) {
		// Firefox wants an icon from every server, which the policy does not allow.
		if method == "log.entryAdded" && !bytes.Contains(params, []byte("/favicon.ico ")) || method == "browsingContext.userPromptOpened" {
			all = append(all, fmt.Sprintf("%s: %s", method, params))
		}
	})
	return all
}

func (p *bidi) requests() (all []request) {
	p.t.Helper()
	p.each(func(method, _ string, params json.RawMessage) {
		if method != "network.beforeRequestSent" {
			return
		}
		var r struct {
			Request struct{ URL, Destination string }
		}
		if err := json.Unmarshal(params, &r); err != nil {
			p.t.Fatal(err)
		}
		if !strings.HasPrefix(r.Request.URL, "data:") { // such as Firefox's own font for lists
			all = append(all, request{r.Request.URL, r.Request.Destination == "document"})
		}
	})
	return all
}
