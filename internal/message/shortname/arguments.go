package shortname

import (
	"bytes"
	"strings"
)

// withoutArguments removes the template and generic arguments from a demangled C++ or Rust
// name. The meaning of an angle bracket is not always decidable from a name. If one has no
// counterpart, the rest of the name remains unchanged.
func withoutArguments(name string) string {
	if !strings.Contains(name, "<") {
		return name
	}
	var b []byte
	for i := 0; i < len(name); {
		end, from := i+1, 0 // from is where arguments begin, if they do
		switch {
		case isOperator(name, i):
			end = operatorEnd(name, i)
			if strings.HasPrefix(name[end:], " <") { // the demangler separates them with a space
				from = end + 1
			}
		case name[i] == '<' && opensArguments(name[:i]):
			end, from = i, i
		}
		b = append(b, name[i:end]...)
		i = end
		if from == 0 {
			continue
		}
		if end = argumentsEnd(name, from); end == 0 {
			b = append(b, name[i:]...)
			break
		}
		b = bytes.TrimSuffix(b, []byte("::")) // Rust's "f::<T>"
		i = end
	}
	return string(b)
}

// withoutInstances removes the arguments of templates from a name of D like "std.array.Appender!(int).put".
func withoutInstances(name string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(name, "!(")
		end := instanceEnd(rest)
		if !found || end < 0 {
			b.WriteString(name)
			return b.String()
		}
		b.WriteString(before)
		name = rest[end:]
	}
}

// instanceEnd returns the end of the arguments at the beginning of name, after the parenthesis, or -1.
// Texts and characters among them may contain parentheses.
func instanceEnd(name string) int {
	depth := 1
	for i := 0; i < len(name); i++ {
		switch c := name[i]; c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"', '\'':
			end := strings.IndexByte(name[i+1:], c)
			if end < 0 {
				return -1
			}
			i += 1 + end
		}
	}
	return -1
}

// opensArguments reports whether a "<" after before opens the arguments of a template. In
// Rust's "<T as Trait>::method" it begins the name itself, and only its contents identify
// the method, and Python has names like "f.<locals>.g".
func opensArguments(before string) bool {
	return before != "" && !strings.ContainsRune("<(,&*[. ", rune(before[len(before)-1]))
}

// argumentsEnd returns the end of the template arguments that begin with the "<" at i, or
// 0 if they do not end.
func argumentsEnd(name string, i int) int {
	// Parentheses contain expressions or parameters, where an angle bracket can be a
	// comparison.
	angles, others := 0, 0
	for i < len(name) {
		if isOperator(name, i) {
			i = operatorEnd(name, i)
			continue
		}
		switch c := name[i]; {
		case c == '(' || c == '[' || c == '{':
			others++
		case c == ')' || c == ']' || c == '}':
			others--
		case others > 0:
		case c == '<':
			angles++
		case c == '>' && name[i-1] != '-': // "->" precedes a type
			if angles--; angles == 0 {
				return i + 1
			}
		}
		if i++; others < 0 {
			return 0
		}
	}
	return 0
}

// isOperator reports whether the word "operator" is at i.
func isOperator(name string, i int) bool {
	const word = "operator"
	if i < 0 || !strings.HasPrefix(name[i:], word) || i > 0 && isWord(name[i-1]) {
		return false
	}
	return len(name) == i+len(word) || !isWord(name[i+len(word)])
}

// operatorEnd returns the end of the operator whose keyword is at i, including its symbol
// if that has angle brackets.
func operatorEnd(name string, i int) int {
	end := i + len("operator")
	for _, symbol := range []string{"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">"} {
		if strings.HasPrefix(name[end:], symbol) {
			return end + len(symbol)
		}
	}
	return end
}

// isWord reports whether c can be part of an identifier.
func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
