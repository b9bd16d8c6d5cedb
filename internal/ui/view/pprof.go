package view

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/symbols/symbolize"
)

// pprofPolicy lets pprof's pages run their inline scripts and styles, and forbids requests
// to other origins.
const pprofPolicy = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"

// sourcePage is the page of pprof that reads source files.
const sourcePage = "/source"

// pprofPages are the pages of github.com/google/pprof, created on the first request.
type pprofPages struct {
	// all returns the pages except sourcePage. source returns that page, for a
	// copy of the profile without the names of files that must not be read.
	all, source func() (map[string]http.Handler, error)
}

// newPprofPages returns the pages of o's profile. If ctx ends, they are not created.
func newPprofPages(ctx context.Context, o Options, library *code.Library) *pprofPages {
	return &pprofPages{
		all: sync.OnceValues(func() (map[string]http.Handler, error) {
			return pprofHandlers(o, library, func(in *Input) (*profile.Profile, error) { return in.pprof(ctx) })
		}),
		source: sync.OnceValues(func() (map[string]http.Handler, error) {
			return pprofHandlers(o, library, func(in *Input) (*profile.Profile, error) {
				p, err := in.pprof(ctx)
				if err == nil {
					withhold(p, in, library)
				}
				return p, err
			})
		}),
	}
}

// withheld replaces the names of source files that pprof must not read. It is not a
// valid path.
const withheld = "(a file that the debug information does not name)"

// withhold removes the file names from p, the pprof form of in, that the debug
// information of the profiled programs does not name. pprof opens any file that a
// profile names.
func withhold(p *profile.Profile, in *Input, library *code.Library) {
	named, _ := library.Named(in.Profile)
	for _, f := range p.Function {
		if f.Filename != "" && !named[f.Filename] {
			f.Filename = withheld
		}
	}
}

// pprofHandlers returns pprof's handlers by path, for the profiles that read makes
// from o's inputs.
func pprofHandlers(o Options, library *code.Library, read func(*Input) (*profile.Profile, error)) (handlers map[string]http.Handler, err error) {
	shown, err := read(&o.Input)
	if err != nil {
		return nil, err
	}
	// pprof modifies the profile.
	objects := &pprofObjects{library: library, profile: shown.Copy(), found: map[*code.File]map[uint64][]symbolize.Frame{}}
	f := pprofFetcher{shown, func() (*profile.Profile, error) { return read(o.Base) }}
	args := []string{"-http=127.0.0.1:0", "-no_browser", "-symbolize=none"}
	if types := o.Input.Profile.ValueTypes; o.Value < len(types) {
		args = append(args, "-sample_index="+types[o.Value].Type)
	}
	if o.Base != nil {
		args = append(args, "-diff_base="+baseSource)
	}
	err = driver.PProf(&driver.Options{
		Flagset: newPprofFlags(append(args, newSource)),
		Fetch:   f,
		Obj:     objects,
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
}

// ServeHTTP implements [http.Handler] for paths below the mount point.
func (p *pprofPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pages := p.all
	if r.URL.Path == sourcePage {
		pages = p.source
	}
	handlers, err := pages()
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

// Names of the profiles for pprof.
const newSource, baseSource = "new", "base"

// pprofFetcher gives pprof profiles by name.
type pprofFetcher struct {
	shown *profile.Profile
	base  func() (*profile.Profile, error)
}

// Fetch implements [driver.Fetcher]. It returns no origin: pprof would treat the
// profile as remote, and store a copy.
func (f pprofFetcher) Fetch(source string, _, _ time.Duration) (p *profile.Profile, from string, err error) {
	if source == newSource {
		return f.shown, "", nil
	}
	p, err = f.base()
	return p, "", err
}

// pprof returns the input in pprof's form.
func (in *Input) pprof(ctx context.Context) (p *profile.Profile, err error) {
	if in.Format == decode.Pprof && in.Content != nil {
		p, err = decode.ParsePprof(ctx, io.NewSectionReader(in.Content, 0, in.Content.Size()))
	} else {
		var b bytes.Buffer
		if err := pprof.Write(&b, in.Profile, pprof.Options{}); err != nil {
			return nil, err
		}
		p, err = decode.ParsePprof(ctx, &b)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range p.Mapping {
		// Mappings by fulgur with file addresses cover the whole address
		// space, which overflows pprof's arithmetic.
		if m.Start == 0 && (m.Limit == 0 || m.Limit == math.MaxUint64) {
			m.Limit = math.MaxInt64
		}
	}
	return p, nil
}

// pprofFlags is the command line for pprof.
type pprofFlags struct {
	*flag.FlagSet
	args []string
}

func newPprofFlags(args []string) *pprofFlags {
	set := flag.NewFlagSet("pprof", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	return &pprofFlags{set, args}
}

// StringList implements [driver.FlagSet].
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

// ExtraUsage implements [driver.FlagSet]. Usage is never printed.
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

// pprofUI is pprof's user interface.
type pprofUI struct{ stderr io.Writer }

// ReadLine implements [driver.UI]. There is no interactive input.
func (pprofUI) ReadLine(string) (string, error) { return "", io.EOF }

// Print implements [driver.UI]. It discards messages that are not errors.
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
