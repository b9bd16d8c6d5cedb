package view

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
)

// flamePage is fulgur's flame page, created on the first request.
type flamePage struct {
	options Options
	once    sync.Once
	text    string
	shown   *profile.Profile // to which requests of the page refer
	err     error
}

// create creates the page, once.
func (p *flamePage) create() error {
	p.once.Do(func() {
		o := p.options
		page := flame.Options{Title: o.Input.Name, Listings: "code", Value: o.Value, ShortNames: o.ShortNames, Native: o.Native, Times: o.Input.Times}
		if o.Base != nil {
			page.Title, page.Base = o.Base.Name+" → "+o.Input.Name, o.Base.Profile
		}
		var b strings.Builder
		p.shown, p.err = flame.WritePage(&b, o.Input.Profile, flame.Compare(o.Input.Profile, page))
		p.text = b.String()
	})
	return p.err
}

// ServeHTTP implements [http.Handler].
func (p *flamePage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := p.create(); err != nil {
		http.Error(w, plain.Error(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, p.text) // the client may have disconnected
}
