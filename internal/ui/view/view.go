// Package view shows profiles in a browser, by a web server on this machine: as
// a flame graph with the source and the instructions of each function, in
// github.com/google/pprof's pages, and in the Firefox Profiler, which it serves
// with symbols, sources and instructions.
//
// Package localhttp lets nobody in but who was told the address, and of pages of
// other origins the Firefox Profiler's alone, while a profile of its format is
// shown. The files that are read are those that package code allows.
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

// Input is a profile that was read.
type Input struct {
	// Name is what the profile is called, usually its file's name.
	Name    string
	Profile *profile.Profile
	// Format is that of Content, the profile as it is, if that can be shown as
	// it is; nil for what is shown as Profile alone.
	Format  decode.Format
	Content *io.SectionReader
}

// isFirefox reports whether the profile is one of the Firefox Profiler's, which
// can be shown as it is.
func (in Input) isFirefox() bool { return in.Format == decode.Firefox && in.Content != nil }

// Options say what to show, and where.
type Options struct {
	Input Input
	// Base, if not nil, is a profile to compare with, which must have the same
	// value types.
	Base *Input
	// Value is the index of the value that the flame graph shows at first.
	Value int
	// Finder finds debug files.
	Finder *debugfile.Finder

	// Listen is the address of the interface to listen on, 127.0.0.1 if empty.
	// Port is the port, any that is free if 0.
	Listen string
	Port   int
	// NoOpen opens no browser.
	NoOpen bool
	// Stderr receives the addresses of the pages.
	Stderr io.Writer
}

// maxRequest is the largest body of a request, in bytes: the Firefox Profiler
// asks for all addresses of a file at once.
const maxRequest = 32 << 20

// Serve shows a profile until ctx ends, which is no error.
func Serve(ctx context.Context, o Options) error {
	library := code.NewLibrary(ctx, o.Finder, symbolize.Options{})
	server, err := listen(ctx, o, library)
	if err == nil {
		announce(ctx, server, o)
		err = server.Serve(ctx)
	}
	return errors.Join(err, library.Close())
}

// listen returns a server of the pages, which listens.
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

// pages returns all that is served, by path.
func pages(ctx context.Context, o Options, library *code.Library) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", newFlamePage(o))
	mux.Handle("GET /code", &listings{input: o.Input.Profile, library: library})
	mux.Handle("/pprof/", http.StripPrefix("/pprof", newPprofPages(ctx, o, library)))
	if o.Input.isFirefox() {
		mux.Handle("GET /"+profileName, content{o.Input.Content})
		newSymbolServer(o.Input.Profile, library).register(mux)
	}
	return mux
}
