package flame

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"fulgur/internal/profile"
)

// Measures of the picture in pixels.
const (
	svgWidth     = 1200.0
	svgMargin    = 12.0
	svgTop       = 44.0
	svgRow       = 18.0
	svgCharWidth = 6.65 // of a monospaced character at the font size used
	svgMinWidth  = 0.5  // narrower boxes are left out with all they carry
	svgMinChars  = 3    // a label shorter than this tells nothing
)

// svgStyle colours boxes by kind with the hues of page.css, in a notation
// that every reader of SVG knows.
const svgStyle = `text{font:11px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#262b33}
.title{font:600 15px system-ui,sans-serif}
.root{fill:#dfe2e7}.cpu{fill:#c6dae6}.process{fill:#c9ced8}.user{fill:#f2c49b}.kernel{fill:#a9c8ea}
.jit{fill:#a8d8bb}.unresolved{fill:#d3d0cc}.marker{fill:#d9bfe0}
.inlined{font-style:italic}
`

// drawSVG writes t as a picture in which the root is at the bottom.
func drawSVG(w io.Writer, p *profile.Profile, o Options, t *tree) error {
	title, v := o.title(p), p.ValueTypes[o.Value]
	rects, rows := layout(t)
	height := svgTop + svgRow*float64(rows) + svgMargin
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g">`+"\n",
		svgWidth, height)
	fmt.Fprintf(out, "<style>%s</style>\n", svgStyle)
	fmt.Fprintf(out, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	fmt.Fprintf(out, `<text class="title" x="%g" y="28">%s</text>`+"\n", svgMargin, escapeXML(title))
	for _, b := range rects {
		f := t.frames[t.nodes[b.node].frame]
		y := height - svgMargin - svgRow*float64(b.depth+1)
		fmt.Fprintf(out, `<g><title>%s</title><rect class="%s" x="%.2f" y="%g" width="%.2f" height="%g"/>`,
			escapeXML(tooltip(f, t, b.node, v)), kindNames[f.kind], b.x, y, max(b.width-0.5, 0.5), svgRow-1)
		if label := fit(f.name, b.width-6); label != "" {
			class := ""
			if f.inlined {
				class = ` class="inlined"`
			}
			fmt.Fprintf(out, `<text%s x="%.2f" y="%g">%s</text>`, class, b.x+3, y+svgRow-5.5, escapeXML(label))
		}
		out.WriteString("</g>\n")
	}
	out.WriteString("</svg>\n")
	return out.Flush()
}

// rect is where a box stands in the picture.
type rect struct {
	box
	x, width float64
}

// layout places the boxes that are wide enough to see and returns the number
// of rows they take.
func layout(t *tree) (rects []rect, rows int) {
	if t.total() <= 0 {
		return nil, 0
	}
	scale := (svgWidth - 2*svgMargin) / float64(t.total())
	var next []int64 // by depth, where the next box begins
	for _, b := range t.boxes {
		d := int(b.depth)
		if d == len(next) {
			next = append(next, 0)
		}
		start, total := next[d], t.nodes[b.node].total
		next[d] += total
		// The callees begin where their caller does.
		next = append(next[:d+1], start)
		// A box is no wider than its caller, so that leaving out a narrow
		// one leaves out all it carries.
		if width := float64(total) * scale; width >= svgMinWidth {
			rects = append(rects, rect{b, svgMargin + float64(start)*scale, width})
			rows = max(rows, d+1)
		}
	}
	return rects, rows
}

// tooltip describes node n of frame f.
func tooltip(f frame, t *tree, n uint32, v profile.ValueType) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %.2f%%", f.name, amount(t.nodes[n].total, v), 100*float64(t.nodes[n].total)/float64(t.total()))
	if f.inlined {
		b.WriteString("\ninlined")
	}
	if source := f.source(); source != "" {
		fmt.Fprintf(&b, "\n%s", source)
	}
	if f.module != "" {
		fmt.Fprintf(&b, "\n%s", f.module)
	}
	return b.String()
}

// amount writes n in the unit of v.
func amount(n int64, v profile.ValueType) string {
	switch v.Unit {
	case "count":
		return strconv.FormatInt(n, 10) + " " + v.Type
	case "nanoseconds":
		return time.Duration(n).String()
	}
	return strconv.FormatInt(n, 10) + " " + v.Unit
}

// fit returns as much of name as width pixels hold, or nothing if that would
// be too little to read.
func fit(name string, width float64) string {
	room := int(width / svgCharWidth)
	switch {
	case utf8.RuneCountInString(name) <= room:
		return name
	case room < svgMinChars:
		return ""
	}
	return string([]rune(name)[:room-1]) + "…"
}

// escapeXML returns s as character data; what XML cannot carry is replaced.
func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return b.String()
}
