// Package flame draws a profile as a flame graph: an interactive page or a picture, each
// in a single self-contained file.
//
// The first level has process names, as in folded stacks, or threads, "comm-pid/tid", and
// CPUs below them, in profiles by thread and CPU. User frames are on top of these, then
// kernel frames. Frames of a function are one box, whatever their addresses. All names
// are untrusted: they are data of the page, never markup, and characters that do not
// print are escaped.
package flame

import (
	"fmt"
	"io"
	"slices"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/report"
	"fulgur/internal/profile/sides"
)

// Options configures the drawing.
type Options struct {
	// Title is the heading; empty means the profile's command or else its scope.
	Title string
	// Value is the index in [profile.Profile.ValueTypes] of the value for the width of
	// boxes. The page also offers the others.
	Value int
	// Inverted draws callees below their callers, as an icicle graph. The page has a
	// switch for it.
	Inverted bool
	// ShortNames shows the short names of functions, see package shortname. The page has a
	// switch for it, and shows the whole name of a box under the pointer.
	ShortNames bool
	// Native counts each stack for its leaf in lists and tables of functions, even if that is an
	// interpreter's function. The page has a switch for it.
	Native bool
	// Width is the width of pictures in pixels; 0 means 1200.
	Width int
	// Base, if not nil, is an earlier profile with the same value types to compare with,
	// function by function. On the page, colors show whether the share of a box grew or
	// shrank; in pictures, whether its amount did.
	Base *profile.Profile
	// Sides, if not nil, names the two profiles, instead of before and now. Then colors on the page also show
	// whether the amount of a box differs, rather than its share.
	Sides *Sides
	// Times, if not nil, is the recording of the profile. The page then shows its time on
	// and off the CPU, and when it was spent. It cannot be combined with Base.
	Times *profile.Timeline
	// Listings, if not empty, is the address, relative to the page's, of a server of
	// source code and instructions (package view). The page then shows these, and may
	// access only that server.
	Listings string
}

// Sides are the names of two profiles that are compared.
type Sides struct {
	Base, New string
}

// Compare returns options with which a flame graph of slow intervals compares them with the others, if p
// has both, and o are of no other comparison.
func Compare(p *profile.Profile, o Options) Options {
	if o.Base != nil || o.Value < 0 || o.Value >= len(p.ValueTypes) || p.ValueTypes[o.Value] != sides.Slow {
		return o
	}
	if base, ok := sides.Base(p); ok {
		o.Base, o.Sides = base, &Sides{Base: "others", New: "slow"}
	}
	return o
}

func (o Options) width() float64 {
	if o.Width > 0 {
		return float64(o.Width)
	}
	return svgWidth
}

func (o Options) title(p *profile.Profile) string {
	for _, s := range []string{o.Title, p.Meta.Command, p.Meta.Scope} {
		if s != "" {
			return plain.Terminal(s)
		}
	}
	return "profile"
}

// WriteHTML writes p to w as an interactive page in a single file. The page works offline
// and from the file system. Its content security policy allows only its own script and
// style. Equal profiles produce equal pages. WriteHTML fails if o.Value is out of range,
// o.Base has other value types or w fails.
func WriteHTML(w io.Writer, p *profile.Profile, o Options) error {
	_, err := WritePage(w, p, o)
	return err
}

// WritePage is like [WriteHTML], and returns the profile that the page shows, to which the
// page's requests refer: p, or the events of o.Times, which have other values and tasks.
func WritePage(w io.Writer, p *profile.Profile, o Options) (shown *profile.Profile, err error) {
	timed, err := o.timed(p)
	if err != nil {
		return nil, err
	}
	if timed != nil {
		o.Value = max(0, slices.IndexFunc(timed.ValueTypes, func(v profile.ValueType) bool {
			return o.Value < len(p.ValueTypes) && v.Type == p.ValueTypes[o.Value].Type
		}))
		p = timed.Profile
	}
	t, err := o.tree(p)
	if err != nil {
		return nil, err
	}
	t.timed = timed
	if o.Base == nil {
		t.idle = report.Idle(p)
	}
	head := newHeader(p, o, t)
	head.Findings = o.findings(p) // those of a report of the page
	return p, writePage(w, head, t)
}

// timed returns the recording of p as a profile, or nil if there is none.
func (o Options) timed(p *profile.Profile) (*timedProfile, error) {
	if o.Times == nil || o.Base != nil {
		return nil, nil
	}
	return newTimedProfile(o.Times, slices.ContainsFunc(p.Tasks, func(t profile.Task) bool { return t.TID != 0 }))
}

// tree returns p and the base profile as a tree.
func (o Options) tree(p *profile.Profile) (*tree, error) {
	if o.Base == nil {
		return newTree(o.Value, maxNodes, p)
	}
	if !slices.Equal(p.ValueTypes, o.Base.ValueTypes) {
		return nil, fmt.Errorf("flame graph: a profile of %v cannot be compared with one of %v", p.ValueTypes, o.Base.ValueTypes)
	}
	return newTree(o.Value, maxNodes, p, o.Base)
}

// WriteSVG writes p to w as a picture. It omits boxes too narrow to see. Pointing at a
// box shows its name and share. In a browser that opens the picture by itself, a script
// zooms into a box on a click, and searches. Equal profiles produce equal pictures. It fails like
// [WriteHTML].
func WriteSVG(w io.Writer, p *profile.Profile, o Options) error {
	t, err := o.tree(p)
	if err != nil {
		return err
	}
	return drawSVG(w, p, o, t)
}
