// Package view shows profiles in a browser, with a web server on this machine: as a
// flame graph with the source and instructions of each function, in
// github.com/google/pprof's pages, and in the Firefox Profiler, which it serves with
// symbols, sources and instructions.
//
// Package localhttp restricts access to users who know the address. The only other
// allowed origin is the Firefox Profiler's, while view shows a profile in its
// format. Package code decides which source files may be read.
package view

import (
	"context"
	"errors"
	"io"
	"net/http"

	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/decode"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/ui/localhttp"
)

// Input is a profile to show.
type Input struct {
	// Name is the profile's name, usually its file's.
	Name    string
	Profile *profile.Profile
	// Content is the unmodified profile, with Format as its format, if it can be
	// shown unmodified; otherwise Content is nil, and Profile is shown.
	Format  decode.Format
	Content *io.SectionReader
	// Times, if not nil, is the recording of Profile, for the flame graph.
	Times *profile.Timeline
}

// isFirefox reports whether the profile has the Firefox Profiler's format and can be
// shown unmodified.
func (in Input) isFirefox() bool { return in.Format == decode.Firefox && in.Content != nil }

// Options configure [Serve].
type Options struct {
	Input Input
	// Base, if not nil, is a profile to compare with. It must have the same
	// value types.
	Base *Input
	// Value is the index of the value that the flame graph initially shows.
	Value int
	// Address is the part of the flame graph's address after "#", with the initial filters.
	Address string
	// ShortNames is set if the flame graph initially shows short names, and Native if its tables initially
	// count stacks for their leaves.
	ShortNames, Native bool
	// Finder finds debug files.
	Finder *debugfile.Finder

	// Listen is the address of the interface to listen on, 127.0.0.1 if empty.
	// Port is the port, any free port if 0.
	Listen string
	Port   int
	// NoOpen suppresses opening a browser.
	NoOpen bool
	// Stderr receives the addresses of the pages.
	Stderr io.Writer
}

// maxRequest limits the body of a request, in bytes. The Firefox Profiler requests
// all addresses of a file at once.
const maxRequest = 32 << 20

// Serve shows a profile until ctx ends, which is not an error.
func Serve(ctx context.Context, o Options) error {
	library := code.NewLibrary(ctx, o.Finder, symbolize.Options{})
	server, err := listen(ctx, o, library)
	if err == nil {
		announce(ctx, server, o)
		err = server.Serve(ctx)
	}
	return errors.Join(err, library.Close())
}

// listen returns a listening server for the pages.
func listen(ctx context.Context, o Options, library *code.Library) (*localhttp.Server, error) {
	served := localhttp.Options{
		Host: o.Listen, Port: o.Port,
		MaxBody: maxRequest, Handler: pages(ctx, o, library),
	}
	if o.Input.isFirefox() {
		served.Origin = profilerOrigin
	}
	return localhttp.New(served)
}

// pages returns the handlers of all pages, by path.
func pages(ctx context.Context, o Options, library *code.Library) http.Handler {
	mux := http.NewServeMux()
	page := &flamePage{options: o}
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /code", &listings{page: page, library: library})
	mux.Handle("/pprof/", http.StripPrefix("/pprof", newPprofPages(ctx, o, library)))
	if o.Input.isFirefox() {
		mux.Handle("GET /"+profileName, content{o.Input.Content})
		newSymbolServer(o.Input.Profile, library).register(mux)
	}
	return mux
}
