package flame

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"strings"

	"fulgur/internal/profile"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// plainNodes is the number of nodes up to which the data stands in the page
// as readable JSON; beyond it is compressed.
const plainNodes = 2000

// writePage fills page.html, whose variable parts are written "{{name}}". As
// everywhere in this package, errors stick to the buffer and Flush returns
// them.
func writePage(w io.Writer, h header, p *profile.Profile, t *tree) error {
	out := bufio.NewWriterSize(w, 32<<10)
	rest := pageHTML
	for {
		text, after, more := strings.Cut(rest, "{{")
		out.WriteString(text)
		if !more {
			return out.Flush()
		}
		name, after, _ := strings.Cut(after, "}}")
		rest = after
		switch name {
		case "policy":
			fmt.Fprintf(out, "default-src 'none'; script-src %s; style-src %s; base-uri 'none'; form-action 'none'",
				sourceHash(pageJS), sourceHash(pageCSS))
		case "title":
			out.WriteString(html.EscapeString(strings.ToValidUTF8(h.Title, "\uFFFD")))
		case "style":
			out.WriteString(pageCSS)
		case "script":
			out.WriteString(pageJS)
		case "data":
			if err := embedData(out, h, p, t); err != nil {
				return err
			}
		}
	}
}

// sourceHash returns s as a source expression of a content security policy.
func sourceHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// embedData writes the element that holds the page's data: a script of a type
// that no browser runs, which the policy therefore does not need to allow.
func embedData(out *bufio.Writer, h header, p *profile.Profile, t *tree) error {
	if len(t.boxes) <= plainNodes {
		out.WriteString("<script id=\"data\" type=\"application/json\">\n")
		if err := writeData(out, h, p, t); err != nil {
			return err
		}
		out.WriteString("</script>")
		return nil
	}
	out.WriteString("<script id=\"data\" type=\"application/gzip\">\n")
	text := base64.NewEncoder(base64.StdEncoding, out)
	packed, err := gzip.NewWriterLevel(text, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := writeData(packed, h, p, t); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	if err := text.Close(); err != nil {
		return err
	}
	out.WriteString("\n</script>")
	return nil
}
