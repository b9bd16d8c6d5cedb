package plain

import (
	"fmt"
	"strings"
)

// Command quotes the arguments of a command for a shell.
func Command(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		words[i] = Word(arg)
	}
	return strings.Join(words, " ")
}

// Word quotes an argument as one word for a shell with $'…', such as bash, if it needs quotes. The result
// is safe to print.
func Word(arg string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%"
	if arg != "" && strings.Trim(arg, safe) == "" {
		return arg
	}
	if Terminal(arg) != arg {
		return "$'" + strings.ReplaceAll(strings.Trim(fmt.Sprintf("%+q", arg), `"`), "'", `\'`) + "'"
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
