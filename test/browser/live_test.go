package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/testenv"
	"fulgur/internal/ui/live"
	"fulgur/internal/ui/localhttp"
)

// serveLive serves a page of windows until stop is called, or the test ends.
func serveLive(t *testing.T) (page *live.Page, url string, stop func()) {
	t.Helper()
	page = live.New()
	server, err := localhttp.New(localhttp.Options{Handler: page})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	stop = func() {
		t.Helper()
		page.End()
		cancel()
		if err := testenv.Receive(t, served, "the server does not end"); err != nil {
			t.Error(err)
		}
		served <- nil
	}
	t.Cleanup(stop)
	return page, server.URL(), stop
}

// A served page shows each new window and keeps the user's choices, can be paused and go
// back, and stays usable when the measurement ends.
func TestLivePage(t *testing.T) {
	c := newTab(t)
	page, url, stop := serveLive(t)
	add := func(p *profile.Profile) {
		t.Helper()
		if err := page.Add(p, flame.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	c.open(url)
	c.until(`document.querySelector("#status")?.textContent === "Waiting for the first window…"`)
	shown := func(n string) {
		t.Helper()
		c.until(`document.documentElement.dataset.shown === "` + n + `" && document.querySelectorAll("iframe").length === 1`)
	}
	inFrame := func(expression, want string) {
		t.Helper()
		c.until(`((document) => ` + expression + `)(document.querySelector("iframe").contentDocument) === "` + want + `"`)
	}
	hit := func(keys ...string) { // before the page does anything else
		t.Helper()
		var ok bool
		c.eval(fmt.Sprintf(`%q.split(",").every((key) => document.dispatchEvent(new KeyboardEvent("keydown", { key })))`,
			strings.Join(keys, ",")), &ok)
	}
	// There is no earlier window yet. A pause shows the first window.
	hit("[", "]")
	c.until(`document.querySelector("#live").ariaPressed === "true"`)
	hit(" ")
	c.until(`document.querySelector("#live").ariaPressed === "false"`)
	add(encodetest.Typical())
	shown("1")
	expect(c, "#status", "Window 1 of 1, paused")
	c.clickOn("#live")
	expect(c, "#status", "Window 1 of 1, live")
	inFrame(`document.querySelector("#title").textContent`, "fulgur profile -F 99 10")

	// The page keeps input and choices when the next window arrives.
	c.clickOn("iframe")
	c.press("t", "/")
	c.write("mn")
	c.press("ArrowLeft") // the caret stays too
	add(encodetest.Threads())
	c.write("a")
	shown("2")
	c.write("i")
	inFrame(`document.activeElement.id`, "search")
	inFrame(`document.querySelector("#search").value`, "main")
	inFrame(`document.body.dataset.view`, "table")
	inFrame(`document.defaultView.location.hash`, "#view=table&invert=0&q=main")
	c.picture("live")

	// A pause keeps the visible window; keys go back and forth.
	c.clickOn("#live")
	add(encodetest.Typical())
	c.until(`document.querySelector("#status").textContent === "Window 2 of 3, paused"`)
	c.clickOn("#previous")
	shown("1")
	c.clickOn("#next")
	shown("2")
	c.clickOn("#live")
	shown("3")
	expect(c, "#status", "Window 3 of 3, live")
	hit("[", "[") // from the visible window, then from the requested one
	shown("1")
	c.clickOn("#live")
	shown("3")

	stop()
	c.until(`document.querySelector("#status").textContent === "Window 3 of 3, the measurement has ended"`)
	inFrame(`document.body.dataset.view`, "table")
	expectQuiet(c)
}
