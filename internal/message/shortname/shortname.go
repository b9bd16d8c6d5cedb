// Package shortname shortens the names of C++, Rust and Go functions for people: they keep
// the function and its class, type or package. The package knows names only by their
// form, and leaves all others as they are.
package shortname

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Of returns name without template and generic arguments, parameters, return type, outer
// namespaces and the path of a Go package: "Server::handle", "<Vec as Iterator>::next",
// "http.(*conn).serve". A lambda or closure keeps the function that contains it:
// "Server::run::{lambda#1}".
func Of(name string) string {
	short, _ := split(name)
	return short
}

// Own returns the part of [Of] that is the function's own name: "handle", "next", "serve",
// "run::{lambda#1}".
func Own(name string) string {
	short, own := split(name)
	return short[own:]
}

// Fit returns as much of name as width characters can show: all of it, or the short name,
// or the function's own name after "…::", or the beginning of that.
func Fit(name string, width int) string {
	if fits(name, width) {
		return name
	}
	short, own := split(name)
	if fits(short, width) {
		return short
	}
	rest := short[own:]
	if own > 0 {
		before := strings.TrimRight(short[:own], ":.")
		for _, tail := range []string{"…" + short[len(before):], "…" + rest, rest} {
			if fits(tail, width) {
				return tail
			}
		}
	}
	if width < 1 {
		return ""
	}
	return string([]rune(rest)[:width-1]) + "…"
}

func fits(s string, width int) bool {
	return len(s) <= width || utf8.RuneCountInString(s) <= width
}

// split returns the short name, and the index in it where the function's own name begins.
func split(name string) (short string, own int) {
	if strings.HasPrefix(name, "[") { // a note or an address
		return name, 0
	}
	if at := moduleOperator(name); at > 0 {
		return name, at
	}
	if strings.Contains(name, "!(") && !strings.Contains(name, "operator!") {
		return withoutInstances(name), 0
	}
	if !strings.Contains(name, "::") {
		if short, own, ok := splitGo(name); ok {
			return short, own
		}
	}
	return splitPath(withoutParameters(withoutArguments(name)))
}

// moduleOperator returns the index of the operator in a name of OCaml like "Stdlib.List.(@)", or 0.
func moduleOperator(name string) int {
	at := strings.LastIndex(name, ".(") + 1
	if at == 0 || !strings.HasSuffix(name, ")") {
		return 0
	}
	symbol := name[at+1 : len(name)-1]
	if symbol == "" || strings.ContainsFunc(symbol, func(r rune) bool { return r >= utf8.RuneSelf || r == ' ' || r != '$' && isWord(byte(r)) }) {
		return 0
	}
	return at
}

// splitGo is split for a name like "example.com/path/pkg.(*Type[...]).method.func1". It
// reports whether name has this form.
func splitGo(name string) (short string, own int, ok bool) {
	short = withoutTypes(name)
	path := short
	if i := strings.IndexByte(path, '('); i >= 0 {
		path = path[:i]
	}
	if strings.ContainsAny(path, " :<") || strings.HasPrefix(path, "/") {
		return name, 0, false
	}
	short = short[strings.LastIndexByte(path, '/')+1:]
	dot := strings.IndexByte(short, '.')
	switch {
	case dot <= 0 || dot == len(short)-1:
		return name, 0, false
	case len(path) == len(name) && !strings.Contains(path, "/"): // any language, or a file's name
		return name, 0, false
	case strings.ContainsRune(short, ' ') || strings.HasSuffix(short, ")"): // parameters
		return name, 0, false
	}
	own = dot + 1
	if end := strings.IndexByte(short, ')'); end > 0 && end+1 < len(short) && short[end+1] == '.' {
		own = end + 2
	}
	return short, own, true
}

// withoutTypes removes the type arguments of a Go name.
func withoutTypes(name string) string {
	if !strings.Contains(name, "[") {
		return name
	}
	var b strings.Builder
	depth := 0
	for i := range len(name) {
		switch {
		case name[i] == '[' && (depth > 0 || i > 0 && isWord(name[i-1])):
			depth++
		case name[i] == ']' && depth > 0:
			depth--
			continue
		}
		if depth == 0 {
			b.WriteByte(name[i])
		}
	}
	if depth > 0 {
		return name
	}
	return b.String()
}

// anonymous is the name of C++ namespaces that have none.
const anonymous = "(anonymous namespace)"

// withoutParameters removes the parameters of functions, and the return type before and
// the qualifiers after them. It keeps the parentheses of operator() and of the anonymous
// namespace.
func withoutParameters(name string) string {
	last := strings.LastIndexByte(name, '(')
	var b strings.Builder
	start := 0 // of what follows the return type
	braces := 0
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case isOperator(name, i):
			end := operatorEnd(name, i)
			if strings.HasPrefix(name[end:], "()") {
				end += len("()")
			} else if strings.HasPrefix(name[end:], " ") { // a conversion, new or delete
				for end < len(name) && name[end] != '(' {
					end++
				}
			}
			b.WriteString(name[i:end])
			i = end - 1
			continue
		case strings.HasPrefix(name[i:], anonymous):
			b.WriteString(anonymous)
			i += len(anonymous) - 1
			continue
		case c == '{':
			braces++
		case c == '}':
			braces--
		case c == ' ' && braces == 0 && i < last:
			start = b.Len() + 1
		case c == '(' && b.Len() > start:
			end := closing(name, i)
			if end == 0 {
				return name
			}
			if braces == 0 && !strings.HasPrefix(name[end:], "::") {
				return strings.TrimSpace(b.String()[start:])
			}
			i = end - 1
			continue
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// closing returns the end of the group that the parenthesis at i opens, or 0.
func closing(name string, i int) int {
	depth := 0
	for ; i < len(name); i++ {
		switch name[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// splitPath is split for a name of components, "a::b::c".
func splitPath(name string) (short string, own int) {
	parts := components(name)
	if len(parts) == 1 || parts[len(parts)-1] == "" {
		return name, 0
	}
	at := len(parts) - 1
	if at > 0 && parts[at] == "operator()" && isClosure(parts[at-1]) {
		at--
		parts = parts[:at+1]
	}
	for at > 0 && isClosure(parts[at]) {
		at--
	}
	tail := strings.Join(parts[at:], "::")
	outer := slices.DeleteFunc(parts[:at:at], func(p string) bool {
		return p == anonymous || p == "__cxx11" || p == "__1" || p == ""
	})
	if len(outer) == 0 {
		return tail, 0
	}
	of := outer[len(outer)-1] + "::"
	return of + tail, len(of)
}

// isClosure reports whether a component stands for a function without a name.
func isClosure(part string) bool {
	return strings.HasPrefix(part, "{") || strings.HasPrefix(part, "$_") || strings.HasPrefix(part, "'lambda")
}

// components splits a name at "::" outside of brackets. The component that Rust writes as
// "<Type as Trait>" gets the last elements of both paths.
func components(name string) []string {
	var parts []string
	depth, start := 0, 0
	for i := 0; i < len(name); i++ {
		if isOperator(name, i) {
			i = operatorEnd(name, i) - 1
			continue
		}
		switch c := name[i]; {
		case strings.ContainsRune("<({[", rune(c)):
			depth++
		case c == '>' && i > 0 && name[i-1] == '-':
		case strings.ContainsRune(">)}]", rune(c)):
			depth--
		case c == ':' && depth == 0 && strings.HasPrefix(name[i:], "::"):
			parts = append(parts, withLastElements(name[start:i]))
			i++
			start = i + 1
		}
	}
	return append(parts, name[start:])
}

// withLastElements shortens "<a::Type as b::Trait>" to "<Type as Trait>".
func withLastElements(part string) string {
	inside, ok := strings.CutPrefix(part, "<")
	if !ok || !strings.HasSuffix(inside, ">") {
		return part
	}
	sides := strings.Split(withoutArguments(inside[:len(inside)-1]), " as ")
	for i, side := range sides {
		sides[i] = side[strings.LastIndex(side, "::")+1:]
		sides[i] = strings.TrimPrefix(sides[i], ":")
	}
	return "<" + strings.Join(sides, " as ") + ">"
}
