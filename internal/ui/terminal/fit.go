package terminal

import (
	"strings"
	"unicode"
)

// wide holds characters that take two columns: East Asian scripts and pictographs
// (Unicode Standard Annex 11, as far as terminals agree on it).
var wide = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, {
	R16: []unicode.Range16{{Lo: 0x3000, Hi: 0x303e, Stride: 1}, {Lo: 0xff01, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, {Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1}},
}}

// columns returns the number of columns of a character.
func columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.In(r, wide...):
		return 2
	}
	return 1
}

// Width returns the number of columns of a printable text.
func Width(s string) (width int) {
	for _, r := range s {
		width += columns(r)
	}
	return width
}

// Fit fits a printable text into exactly width columns: it pads with spaces, or
// truncates and appends "…".
func Fit(s string, width int) string {
	have := Width(s)
	if have <= width {
		return s + strings.Repeat(" ", width-have)
	}
	if width <= 0 {
		return ""
	}
	var b strings.Builder
	have = 0
	for _, r := range s {
		if have+columns(r) > width-1 {
			break
		}
		have += columns(r)
		b.WriteRune(r)
	}
	b.WriteString("…")
	return b.String() + strings.Repeat(" ", width-1-have)
}

// FitEnd is like [Fit], but keeps the end of the text, such as a path, and puts "…"
// at its beginning.
func FitEnd(s string, width int) string {
	if Width(s) <= width {
		return Fit(s, width)
	}
	runes, have := []rune(s), 0
	first := len(runes)
	for first > 0 && have+columns(runes[first-1]) < width {
		first--
		have += columns(runes[first])
	}
	if width <= 0 {
		return ""
	}
	return Fit("…"+string(runes[first:]), width)
}
