// Package flame draws a profile as a flame graph: an interactive page or a
// picture, each one self-contained file.
//
// Process names are the first level, as in folded stacks, or threads,
// "comm-pid/tid", and CPUs below them, where these are told apart; user frames
// stand on them, kernel frames on top. Frames of one function are one box, whatever
// their addresses. All names come from foreign programs: they are data in the
// page, never markup, and what does not print in them is shown by its escape.
package flame

import (
	"fmt"
	"io"
	"slices"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// Options says how to draw.
type Options struct {
	// Title heads the graph; if empty, the profile's command or else its
	// scope does.
	Title string
	// Value indexes [profile.Profile.ValueTypes]: what the width of a box
	// stands for. The page offers the others too.
	Value int
	// Inverted hangs callees below their callers, an icicle graph, where
	// they otherwise stand on them. The page can be turned over.
	Inverted bool
	// Base, if not nil, is an earlier profile with the same value types that
	// is compared with, function by function. In the page colours tell
	// whether the share of a box in its profile grew or shrank, in pictures
	// whether its amount did.
	Base *profile.Profile
	// Listings, if not empty, is the address, relative to the page's, of what
	// answers with the source and the instructions of functions (package view).
	// The page then shows them; it may ask that server and no other.
	Listings string
}

func (o Options) title(p *profile.Profile) string {
	for _, s := range []string{o.Title, p.Meta.Command, p.Meta.Scope} {
		if s != "" {
			return plain.Terminal(s)
		}
	}
	return "profile"
}

// WriteHTML writes p to w as an interactive page in one file. The page works
// without a network and from the file system; its content security policy
// allows it nothing but its own script and style. Equal profiles give equal
// pages. It fails if o.Value is out of range, o.Base has other value types or w
// fails.
func WriteHTML(w io.Writer, p *profile.Profile, o Options) error {
	t, err := o.tree(p)
	if err != nil {
		return err
	}
	return writePage(w, newHeader(p, o, t), t)
}

// tree returns p, and what it is compared with, as one tree.
func (o Options) tree(p *profile.Profile) (*tree, error) {
	if o.Base == nil {
		return newTree(o.Value, maxNodes, p)
	}
	if !slices.Equal(p.ValueTypes, o.Base.ValueTypes) {
		return nil, fmt.Errorf("flame graph: a profile of %v cannot be compared with one of %v", p.ValueTypes, o.Base.ValueTypes)
	}
	return newTree(o.Value, maxNodes, p, o.Base)
}

// WriteSVG writes p to w as a picture. Boxes too narrow to see are left out;
// pointing at one shows its name and share. Equal profiles give equal
// pictures. It fails as [WriteHTML] does.
func WriteSVG(w io.Writer, p *profile.Profile, o Options) error {
	t, err := o.tree(p)
	if err != nil {
		return err
	}
	return drawSVG(w, p, o, t)
}
