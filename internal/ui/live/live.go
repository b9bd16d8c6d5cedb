// Package live shows the flame graphs of a running measurement. Its page displays the
// newest window, and replaces it by the next one while keeping the zoom, search and
// choices of the user.
//
// It is an [http.Handler] for [fulgur/internal/ui/localhttp], with these paths:
//
//	/           the page
//	/events     server-sent events: {"first":3,"last":14} for each new
//	            window, and "end" after the last
//	/window/14  the flame page of a window
package live

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
)

//go:embed page/live.html
var pageHTML string

//go:embed page/live.css
var pageCSS string

//go:embed page/live.js
var pageJS string

// keep is the number of windows that the user can go back to.
const keep = 20

// beat is the interval of keep-alive messages, which reveal browsers that have left.
const beat = 15 * time.Second

// writeTimeout is the timeout for writing one event.
const writeTimeout = time.Minute

// Page is the page of one measurement. It is safe for concurrent use.
type Page struct {
	html   string
	policy string

	mu    sync.Mutex
	pages map[int][]byte // recent windows, by number
	last  int
	ended bool
	news  chan struct{} // closed on every change
}

// New returns a page without windows.
func New() *Page {
	return &Page{
		html: strings.NewReplacer("{{style}}", pageCSS, "{{script}}", pageJS).Replace(pageHTML),
		policy: "default-src 'none'; script-src " + sourceHash(pageJS) + "; style-src " + sourceHash(pageCSS) +
			"; connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; " +
			"require-trusted-types-for 'script'; trusted-types 'none'",
		pages: map[int][]byte{},
		news:  make(chan struct{}),
	}
}

// sourceHash returns s as a hash source of a content security policy.
func sourceHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Add shows the profile of another window, drawn according to o. Windows arrive
// about once a second or less often.
func (p *Page) Add(window *profile.Profile, o flame.Options) error {
	var page bytes.Buffer
	if err := flame.WriteHTML(&page, window, o); err != nil {
		return fmt.Errorf("write the page of a window: %w", err)
	}
	p.change(func() {
		p.last++
		p.pages[p.last] = page.Bytes()
		delete(p.pages, p.last-keep)
	})
	return nil
}

// End announces that no more windows follow.
func (p *Page) End() { p.change(func() { p.ended = true }) }

// change changes the state and wakes all waiters.
func (p *Page) change(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what()
	close(p.news)
	p.news = make(chan struct{})
}

// state returns the first and the last available window, whether the measurement has
// ended, and a channel that is closed on the next change.
func (p *Page) state() (first, last int, ended bool, news <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.last-keep+1, min(p.last, 1)), p.last, p.ended, p.news
}

// ServeHTTP implements [http.Handler].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	number, isWindow := strings.CutPrefix(r.URL.Path, "/window/")
	switch {
	case r.URL.Path == "/":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", p.policy)
		_, _ = w.Write([]byte(p.html)) // the browser may have left
	case r.URL.Path == "/events":
		p.serveEvents(w, r)
	case isWindow:
		p.serveWindow(w, r, number)
	default:
		http.NotFound(w, r)
	}
}

func (p *Page) serveWindow(w http.ResponseWriter, r *http.Request, number string) {
	n, err := strconv.Atoi(number)
	p.mu.Lock()
	page, ok := p.pages[n]
	p.mu.Unlock()
	if err != nil || !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'self'") // in addition to the page's own policy
	w.Header().Set("X-Frame-Options", "SAMEORIGIN")
	_, _ = w.Write(page) // the browser may have left
}

// serveEvents sends events until the measurement ends or the browser leaves.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	sent, text := -1, ""
	for {
		first, last, ended, news := p.state()
		if last != sent {
			text = fmt.Sprintf("data: {\"first\":%d,\"last\":%d}\n\n", first, last)
			sent = last
		}
		if ended {
			text += "event: end\ndata: {}\n\n"
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // per event, not for the whole stream
		if _, err := w.Write([]byte(text)); err != nil || control.Flush() != nil || ended {
			return
		}
		text = ""
		select {
		case <-news:
		case <-time.After(beat):
			text = ": still there\n\n"
		case <-r.Context().Done():
			if _, _, ended, _ := p.state(); !ended {
				return
			}
		}
	}
}
