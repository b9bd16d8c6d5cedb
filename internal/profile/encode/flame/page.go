package flame

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"strings"
	"sync"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

//go:embed page/*.js
var pageScripts embed.FS

// pageJS is the page's script: the files of directory page in a common scope, starting
// with those that others use while loading. It is put together on first use, since most runs write no page.
var pageJS = sync.OnceValue(func() string {
	var b strings.Builder
	b.WriteString("'use strict';\n(() => {\n")
	for _, name := range []string{
		"dom", "data", "format", "names", "weights", "view", "timeview", "functions", "colors", "widgets", "chart",
		"panel", "table", "syntax", "code", "search", "prune", "filter", "times", "state", "run", "export", "pprof", "main",
	} {
		text, err := pageScripts.ReadFile("page/" + name + ".js")
		if err != nil {
			panic(err) // the file is embedded
		}
		b.Write(text)
	}
	b.WriteString("})();\n")
	return b.String()
})

// writePage fills page.html, whose variable parts are written "{{name}}". Errors stick to
// the buffer and are returned by Flush, as everywhere in this package.
func writePage(w io.Writer, h header, t *tree) error {
	out := bufio.NewWriterSize(w, 64<<10)
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
			// No trusted types are allowed, so text cannot become markup.
			fmt.Fprintf(out, "default-src 'none'; script-src %s; style-src %s; base-uri 'none'; form-action 'none'; "+
				"require-trusted-types-for 'script'; trusted-types 'none'",
				sourceHash(pageJS()), sourceHash(pageCSS))
			if h.Listings != "" {
				out.WriteString("; connect-src 'self'")
			}
		case "title":
			out.WriteString(html.EscapeString(h.Title))
		case "style":
			out.WriteString(pageCSS)
		case "script":
			out.WriteString(pageJS())
		case "data":
			if err := embedData(out, h, t); err != nil {
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

// embedData writes the page's data compressed and in base64, whose alphabet cannot be
// mistaken for markup.
func embedData(out *bufio.Writer, h header, t *tree) error {
	text := base64.NewEncoder(base64.StdEncoding, out)
	packed := gzip.NewWriter(text)
	if err := writeData(packed, h, t); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return text.Close()
}
