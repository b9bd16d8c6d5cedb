package view

import (
	"bytes"
	"net/http"
	"sync"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile/encode/flame"
)

// flamePage is fulgur's flame page, created on the first request.
type flamePage struct {
	write func() ([]byte, error)
}

func newFlamePage(o Options) *flamePage {
	return &flamePage{sync.OnceValues(func() ([]byte, error) {
		var b bytes.Buffer
		page := flame.Options{Title: o.Input.Name, Listings: "code", Value: o.Value, ShortNames: o.ShortNames, Times: o.Input.Times}
		if o.Base != nil {
			page.Title, page.Base = o.Base.Name+" → "+o.Input.Name, o.Base.Profile
		}
		err := flame.WriteHTML(&b, o.Input.Profile, page)
		return b.Bytes(), err
	})}
}

// ServeHTTP implements [http.Handler].
func (p *flamePage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := p.write()
	if err != nil {
		http.Error(w, plain.Error(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text) // the client may have disconnected
}
