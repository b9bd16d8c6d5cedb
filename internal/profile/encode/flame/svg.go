package flame

import (
	"bufio"
	_ "embed" // svgScript
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// Dimensions of the picture in pixels.
const (
	svgWidth     = 1200.0 // unless the options choose another one
	svgMargin    = 12.0
	svgTop       = 44.0
	svgRow       = 18.0
	svgLine      = 16.0 // of the text below the graph
	svgCharWidth = 6.65 // width of a monospaced character at the font size used
	svgMinWidth  = 0.1  // narrower boxes are omitted with their callees, as in flamegraph.pl
	svgGap       = 0.5  // between boxes that are not narrow
	svgMinChars  = 3    // shorter labels are useless
)

// svgScript zooms and searches in a browser that opens the picture by itself.
//
//go:embed picture.js
var svgScript string

// svgStyle colors boxes by kind like page.css, in notation supported by all SVG readers. The
// window around a picture that a browser shows by itself has the color of its ground.
const svgStyle = `svg:root{background:#fff}text{font:11px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#262b33}
.title{font:600 15px system-ui,sans-serif}
.note{font:12px system-ui,sans-serif;fill:#5f6877}.warn{fill:#a34a00}.i{font-style:italic}
.ground{fill:#fff}.root{fill:#dcdee2}.cpu{fill:#c4dce8}.group{fill:#bfe0d2}.process{fill:#c4cbd7}.user{fill:#f1c498}.inlined{fill:#ede3a5}
.kernel{fill:#a3c9ed}.jit{fill:#9fdec2}.unresolved{fill:#d6d4d0}.marker{fill:#dcbee3}
@media (prefers-color-scheme:dark){svg:root{background:#15181d}text{fill:#f3f4f6}.note{fill:#98a2b1}.warn{fill:#f0a868}
.ground{fill:#15181d}.root{fill:#33353a}.cpu{fill:#2d434e}.group{fill:#2c4b40}.process{fill:#414854}.user{fill:#875934}.inlined{fill:#73642c}
.kernel{fill:#3a6188}.jit{fill:#356d59}.unresolved{fill:#494745}.marker{fill:#6b4a72}}
`

// svgChangeStyle colors boxes by change: blue for less and orange for more, which
// color-blind readers can distinguish.
const svgChangeStyle = `.same{fill:#e4e5e7}.less1{fill:#cbdaea}.less2{fill:#b0cfee}.less3{fill:#94c3f2}.less4{fill:#76b7f6}
.more1{fill:#eed8c4}.more2{fill:#f3c9a3}.more3{fill:#f6ba81}.more4{fill:#f8aa5c}
@media (prefers-color-scheme:dark){.same{fill:#3c3f45}.less1{fill:#404e5e}.less2{fill:#3c5a7b}.less3{fill:#356598}.less4{fill:#2a6fb6}
.more1{fill:#5d473c}.more2{fill:#774b33}.more3{fill:#914e24}.more4{fill:#ab4f04}}
`

// svgKind is a class of boxes in the legend.
type svgKind struct{ class, label string }

// svgKinds holds the classes of kinds.
var svgKinds = []svgKind{
	{"cpu", "CPU"}, {"group", "Group"}, {"process", "Process"}, {"user", "User"}, {"inlined", "Inlined"}, {"kernel", "Kernel"}, {"jit", "Interpreted, JIT"},
	{"unresolved", "No symbol"}, {"marker", "Note"},
}

// svgClass returns the class of the boxes of f.
func svgClass(f frame) string {
	if f.inlined && f.kind == kindUser {
		return "inlined"
	}
	return kindNames[f.kind]
}

// changeSteps is the number of colors from unchanged to gone or new.
const changeSteps = 4

// changeClass returns the class for a change, from -1 (gone) to 1 (new).
func changeClass(change float64) string {
	switch step := int(math.Round(change * changeSteps)); {
	case step < 0:
		return fmt.Sprintf("less%d", -step)
	case step > 0:
		return fmt.Sprintf("more%d", step)
	}
	return "same"
}

// drawSVG draws t. The root is at the bottom, or at the top if inverted.
func drawSVG(w io.Writer, p *profile.Profile, o Options, t *tree) error {
	width := o.width()
	rects, rows := layout(t, width)
	notes := svgNotes(p, o, t)
	graph := svgRow * float64(rows)
	height := svgTop + graph + svgMargin + svgLine*float64(len(notes)+1) // a line for the script
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g">`+"\n",
		width, height)
	style := svgStyle
	if o.Base != nil {
		style += svgChangeStyle
	}
	fmt.Fprintf(out, "<style>%s</style>\n", style)
	out.WriteString(`<rect class="ground" width="100%" height="100%"/>` + "\n")
	room := drawLegend(out, legend(t, rects), width)
	fmt.Fprintf(out, `<text class="title" x="%g" y="28">%s</text>`+"\n", svgMargin, escapeXML(fit(o.title(p), room)))
	for _, b := range rects {
		f := t.frames[t.nodes[b.node].frame]
		y := svgTop + graph - svgRow*float64(b.depth+1)
		if o.Inverted {
			y = svgTop + svgRow*float64(b.depth)
		}
		color := svgClass(f)
		if o.Base != nil {
			color = changeClass(t.nodes[b.node].change())
		}
		fmt.Fprintf(out, `<g%s><title>%s</title><rect class="%s" x="%.3f" y="%g" width="%.3f" height="%g"/>`,
			shortData(f, o), escapeXML(tooltip(f, t, b.node, o, p.ValueTypes[o.Value])), color, b.x, y, max(b.width-svgGap, b.width/2), svgRow-1)
		if label := f.fit(o.ShortNames, b.width-6); label != "" {
			class := ""
			if f.inlined {
				class = ` class="i"`
			}
			fmt.Fprintf(out, `<text%s x="%.2f" y="%g">%s</text>`, class, b.x+3, y+svgRow-5.5, escapeXML(label))
		}
		out.WriteString("</g>\n")
	}
	for i, n := range notes {
		fmt.Fprintf(out, `<text class="%s" x="%g" y="%g">%s</text>`+"\n",
			n.class, svgMargin, svgTop+graph+svgLine*float64(i+1), escapeXML(fit(n.text, width-2*svgMargin)))
	}
	fmt.Fprintf(out, "<script><![CDATA[\n%s]]></script>\n", svgScript)
	out.WriteString("</svg>\n")
	return out.Flush()
}

// shortData returns the attribute with the name that the script shows, if it is not the
// whole one.
func shortData(f frame, o Options) string {
	if short := f.shown(o.ShortNames); short != f.name {
		return ` data-name="` + escapeXML(short) + `"`
	}
	return ""
}

// legend returns the classes of the visible boxes, or in a comparison the ends and the
// middle of the scale.
func legend(t *tree, rects []rect) []svgKind {
	if len(t.profiles) > 1 {
		return []svgKind{{changeClass(-1), "Gone"}, {changeClass(-0.5), "Less"}, {changeClass(0), "Same"}, {changeClass(0.5), "More"}, {changeClass(1), "New"}}
	}
	shown := map[string]bool{}
	for _, b := range rects {
		shown[svgClass(t.frames[t.nodes[b.node].frame])] = true
	}
	return slices.DeleteFunc(slices.Clone(svgKinds), func(k svgKind) bool { return !shown[k.class] })
}

// drawLegend draws the legend of classes at the upper right. It returns the remaining
// width.
func drawLegend(out *bufio.Writer, classes []svgKind, width float64) (room float64) {
	x := width - svgMargin
	for _, k := range slices.Backward(classes) {
		x -= 30 + svgCharWidth*float64(len(k.label))
		fmt.Fprintf(out, `<rect class="%s" x="%.2f" y="19" width="10" height="10" rx="2"/><text class="note" x="%.2f" y="28">%s</text>`+"\n",
			k.class, x+14, x+28, k.label)
	}
	return x - svgMargin
}

// note is a line of text below the graph.
type note struct{ class, text string }

// svgNotes describes what was measured, where, and what was lost.
func svgNotes(p *profile.Profile, o Options, t *tree) []note {
	var notes []note
	join := func(class, separator string, parts ...string) {
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		if len(parts) > 0 {
			notes = append(notes, note{class, strings.Join(parts, separator)})
		}
	}
	if command := plainText(p.Meta.Command); command != o.title(p) {
		join("note", "", command)
	}
	v := p.ValueTypes[o.Value]
	join("note", " · ", describe.Run(p.Meta), amount(p.Total(o.Value), v), describe.Machine(p.Meta))
	join("note warn", ", ", lost(t.drawn(p))...)
	if text := describe.Negative(p, o.Value); text != "" {
		join("note warn", "", text+" are "+describe.NegativeEffect)
	}
	return notes
}

// rect is the position of a box in the picture.
type rect struct {
	box
	x, width float64
}

// layout places the visible boxes in a picture of the given width, and returns the number of rows.
func layout(t *tree, width float64) (rects []rect, rows int) {
	if t.total() <= 0 {
		return nil, 0
	}
	scale := (width - 2*svgMargin) / float64(t.total())
	var next []int64 // by depth, the start of the next box
	for _, b := range t.boxes {
		d := int(b.depth)
		if d == len(next) {
			next = append(next, 0)
		}
		start, total := next[d], t.nodes[b.node].total
		next[d] += total
		// Callees begin where their caller does.
		next = append(next[:d+1], start)
		// A box is no wider than its caller, so the callees of an omitted box are narrow
		// too.
		if width := float64(total) * scale; width >= svgMinWidth {
			rects = append(rects, rect{b, svgMargin + float64(start)*scale, width})
			rows = max(rows, d+1)
		}
	}
	return rects, rows
}

// tooltip describes node n of frame f.
func tooltip(f frame, t *tree, n uint32, o Options, v profile.ValueType) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %.2f%%", f.name, amount(t.nodes[n].total, v), 100*float64(t.nodes[n].total)/float64(t.total()))
	if len(t.profiles) > 1 {
		name := "before"
		if o.Sides != nil {
			name = o.Sides.Base
		}
		fmt.Fprintf(&b, "\n%s: %s", name, amount(t.nodes[n].before, v))
	}
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
		return strconv.FormatInt(n, 10) + " " + plainText(v.Type)
	case "nanoseconds":
		return time.Duration(n).String()
	}
	return strconv.FormatInt(n, 10) + " " + plainText(v.Unit)
}

// fit truncates name to width pixels, or returns "" if that would be too short to read.
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

// escapeXML escapes s as character data, and replaces what XML cannot represent.
func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder cannot fail
	return b.String()
}
