// Package view shows profiles in a browser, by a web server on this machine: as
// a flame graph with the source and the instructions of each function, in
// github.com/google/pprof's pages, and in the Firefox Profiler, which it serves
// with symbols, sources and instructions.
//
// Whatever runs in a browser can ask a server on its machine, and any user of
// the machine can connect to it. So every address has a random token in its
// path, requests under another host's name are refused, as is what pages of
// other origins ask, but for the Firefox Profiler; and the files that are read
// are those that package code allows.
package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"fulgur/internal/code"
	"fulgur/internal/debugfile"
	"fulgur/internal/decode"
	"fulgur/internal/profile"
	"fulgur/internal/symbolize"
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

// Options say what to show, and where.
type Options struct {
	Input Input
	// Base, if not nil, is a profile to compare with, which must have the same
	// value types.
	Base *Input
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

// Limits of the server.
const (
	headerTime = 10 * time.Second // for the header of a request
	readTime   = time.Minute      // for a whole request
	writeTime  = 10 * time.Minute // to answer, which may take downloads
	idleTime   = 2 * time.Minute
	endTime    = 2 * time.Second // for what is being answered at the end
	mostHeader = 64 << 10        // bytes
)

// Serve shows a profile until ctx ends, which is no error.
func Serve(ctx context.Context, o Options) (err error) {
	if o.Listen == "" {
		o.Listen = loopback
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(o.Listen, strconv.Itoa(o.Port)))
	if err != nil {
		return fmt.Errorf("no page can be served: %w", err)
	}
	library := code.NewLibrary(ctx, o.Finder, symbolize.Options{})
	s := newServer(o, library, newToken())
	web := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: mostHeader,
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	announce(ctx, s.links(listener.Addr()), o)
	select {
	case err = <-ended:
		err = fmt.Errorf("serve pages: %w", err)
	case <-ctx.Done():
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		if web.Shutdown(wait) != nil {
			err = web.Close() // somebody still downloads
		}
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	return errors.Join(err, library.Close())
}
