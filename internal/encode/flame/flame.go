// Package flame draws a profile as a flame graph: an interactive page or a
// picture, each one self-contained file.
//
// Process names are the first level, as in folded stacks, or threads,
// "comm-pid/tid", and CPUs below them, where these are told apart; user frames
// stand on them, kernel frames on top. Frames of one function are one box, whatever
// their addresses. All names come from foreign programs: they are data in the
// page, never markup.
package flame

import (
	"io"

	"fulgur/internal/profile"
)

// Options says how to draw.
type Options struct {
	// Title heads the graph; if empty, the profile's command or else its
	// scope does.
	Title string
	// Value indexes [profile.Profile.ValueTypes]: what the width of a box
	// stands for.
	Value int
	// Compare says that the first two value types are those of a base and of
	// what became of it (see [profile.Diff]): boxes are coloured by how they
	// changed. Value is then the one or the other.
	Compare bool
}

func (o Options) title(p *profile.Profile) string {
	for _, s := range []string{o.Title, p.Meta.Command, p.Meta.Scope} {
		if s != "" {
			return s
		}
	}
	return "profile"
}

// WriteHTML writes p to w as an interactive page in one file. The page works
// without a network and from the file system; its content security policy
// allows it nothing but its own script and style. Equal profiles give equal
// pages. It fails if o.Value is out of range or w fails.
func WriteHTML(w io.Writer, p *profile.Profile, o Options) error {
	t, err := newTree(p, o)
	if err != nil {
		return err
	}
	return writePage(w, newHeader(p, o), p, t)
}

// WriteSVG writes p to w as a picture. Boxes too narrow to see are left out;
// pointing at one shows its name and share. Equal profiles give equal
// pictures. It fails if o.Value is out of range or w fails.
func WriteSVG(w io.Writer, p *profile.Profile, o Options) error {
	t, err := newTree(p, o)
	if err != nil {
		return err
	}
	return drawSVG(w, o.title(p), p.ValueTypes[o.Value], t)
}
