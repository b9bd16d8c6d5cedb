package view

import (
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// profilerOrigin is the origin of the Firefox Profiler, the only other
	// origin that may send requests.
	profilerOrigin = "https://profiler.firefox.com"
	// profileName is the resource of the unmodified profile.
	profileName = "profile.json.gz"
)

// content serves the unmodified profile. The Firefox Profiler detects compression
// itself.
type content struct{ *io.SectionReader }

// ServeHTTP implements [http.Handler].
func (c content) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(c, 0, c.Size())) // readers do not share an offset
}

// profilerLink returns the address at which the Firefox Profiler opens the profile
// served below base, and requests symbols from there.
func profilerLink(base string) string {
	return profilerOrigin + "/from-url/" + url.QueryEscape(base+profileName) +
		"/?symbolServer=" + url.QueryEscape(base[:len(base)-1])
}
