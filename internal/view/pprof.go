package view

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"

	"fulgur/internal/decode"
	"fulgur/internal/encode/plain"
	"fulgur/internal/encode/pprof"
)

// pprofPolicy lets pprof's pages run the scripts and styles that stand in them,
// and ask for nothing elsewhere.
const pprofPolicy = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"

// pprofPages are the pages of github.com/google/pprof, made when one is first
// asked for.
type pprofPages struct {
	handlers func() (map[string]http.Handler, error)
}

// newPprofPages returns the pages of o's profile.
func newPprofPages(o Options) *pprofPages {
	return &pprofPages{sync.OnceValues(func() (handlers map[string]http.Handler, err error) {
		f := pprofFetcher{o}
		args := []string{"-http=" + loopback + ":0", "-no_browser", "-symbolize=none"}
		if o.Base != nil {
			args = append(args, "-diff_base="+baseSource)
		}
		err = driver.PProf(&driver.Options{
			Flagset: newPprofFlags(append(args, newSource)),
			Fetch:   f,
			UI:      pprofUI{o.Stderr},
			HTTPServer: func(served *driver.HTTPServerArgs) error {
				handlers = served.Handlers
				return nil
			},
		})
		if err == nil && handlers == nil {
			err = errors.New("no pages")
		}
		return handlers, err
	})}
}

// ServeHTTP implements [http.Handler] for paths without what they are mounted
// at.
func (p *pprofPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handlers, err := p.handlers()
	if err != nil {
		http.Error(w, "pprof: "+plain.Error(err), http.StatusInternalServerError)
		return
	}
	h, ok := handlers[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Security-Policy", pprofPolicy)
	h.ServeHTTP(w, r)
}

// What the profiles are called towards pprof.
const newSource, baseSource = "new", "base"

// pprofFetcher gives pprof the profiles that it asks for by name.
type pprofFetcher struct{ o Options }

// Fetch implements [driver.Fetcher].
func (f pprofFetcher) Fetch(source string, _, _ time.Duration) (*profile.Profile, string, error) {
	in := &f.o.Input
	if source == baseSource {
		in = f.o.Base
	}
	p, err := in.pprof()
	return p, in.Name, err
}

// pprof returns the input as pprof has it.
func (in *Input) pprof() (*profile.Profile, error) {
	if in.Format == decode.Pprof && in.Content != nil {
		return profile.Parse(io.NewSectionReader(in.Content, 0, in.Content.Size()))
	}
	var b bytes.Buffer
	if err := pprof.Write(&b, in.Profile, pprof.Options{}); err != nil {
		return nil, err
	}
	return profile.Parse(&b)
}

// pprofFlags is a command line for pprof.
type pprofFlags struct {
	*flag.FlagSet
	args []string
}

func newPprofFlags(args []string) *pprofFlags {
	set := flag.NewFlagSet("pprof", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	return &pprofFlags{set, args}
}

// StringList implements [driver.FlagSet]: a flag of several texts.
func (f *pprofFlags) StringList(name, value, usage string) *[]*string {
	list := &[]*string{}
	f.Func(name, usage, func(s string) error {
		*list = append(*list, &s)
		return nil
	})
	if value != "" {
		*list = append(*list, &value)
	}
	return list
}

// ExtraUsage implements [driver.FlagSet]; nobody reads a usage here.
func (*pprofFlags) ExtraUsage() string { return "" }

// AddExtraUsage implements [driver.FlagSet].
func (*pprofFlags) AddExtraUsage(string) {}

// Parse implements [driver.FlagSet].
func (f *pprofFlags) Parse(usage func()) []string {
	if err := f.FlagSet.Parse(f.args); err != nil {
		usage()
	}
	return f.Args()
}

// pprofUI is what pprof tells the user by.
type pprofUI struct{ stderr io.Writer }

// ReadLine implements [driver.UI]: there is nobody to type.
func (pprofUI) ReadLine(string) (string, error) { return "", io.EOF }

// Print implements [driver.UI]: what it says is told already.
func (pprofUI) Print(...any) {}

// PrintErr implements [driver.UI].
func (u pprofUI) PrintErr(args ...any) {
	fmt.Fprintln(u.stderr, "pprof:", plain.Terminal(fmt.Sprint(args...)))
}

// IsTerminal implements [driver.UI].
func (pprofUI) IsTerminal() bool { return false }

// WantBrowser implements [driver.UI].
func (pprofUI) WantBrowser() bool { return false }

// SetAutoComplete implements [driver.UI].
func (pprofUI) SetAutoComplete(func(string) string) {}
