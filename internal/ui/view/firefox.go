package view

import (
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// profilerOrigin is the origin of the Firefox Profiler's page, the only
	// stranger that may ask.
	profilerOrigin = "https://profiler.firefox.com"
	// profileName is the resource of the profile, as it is.
	profileName = "profile.json.gz"
)

// content serves the profile as it is; the Firefox Profiler sees by itself
// whether it is compressed.
type content struct{ *io.SectionReader }

// ServeHTTP implements [http.Handler].
func (c content) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(c, 0, c.Size())) // each reader has a place
}

// profilerLink returns the address at which the Firefox Profiler opens the
// profile that is served below base, and asks there for symbols.
func profilerLink(base string) string {
	return profilerOrigin + "/from-url/" + url.QueryEscape(base+profileName) +
		"/?symbolServer=" + url.QueryEscape(base[:len(base)-1])
}
