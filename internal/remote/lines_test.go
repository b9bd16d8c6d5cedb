package remote

import (
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	const line = progressBegin + "1 s, 5 samples" + progressEnd
	for name, c := range map[string]struct {
		l        lines
		in, want string
	}{
		"lines":       {lines{prefix: "a: "}, "one\ntwo\r\n\nrest", "a: one\na: two\na: \na: rest\n"},
		"escapes":     {lines{}, "\x1b[2Jx\ty\u202e\xff\n", "\\x1b[2Jx\ty\\u202e\\xff\n"},
		"long":        {lines{longest: 3}, strings.Repeat("x", 10_000) + "\nab\n", "xxx...\nab\n"},
		"many":        {lines{most: 2}, "1\n2\n3\n4\n", "1\n2\nmore messages are left out\n"},
		"progress":    {lines{progress: true}, line + line + clearLine + "end\n", line + line + clearLine + "end\n"},
		"cleared":     {lines{progress: true}, line + clearLine, line + clearLine},
		"no progress": {lines{}, line + clearLine + "end\n", "end\n"},
		"forged":      {lines{progress: true}, progressBegin + "\x1b[2J\x07" + progressEnd, progressBegin + `\x1b[2J\a` + progressEnd + clearLine},
		"replaced":    {lines{replace: strings.ToUpper}, "x\n", "X\n"},
	} {
		for _, n := range []int{1, 7, len(c.in)} { // however the text is cut
			var got strings.Builder
			l := c.l
			l.to = &got
			if l.longest == 0 {
				l.longest = 100
			}
			for rest := c.in; rest != ""; {
				part := rest[:min(n, len(rest))]
				rest = rest[len(part):]
				if _, err := l.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.end(); err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want {
				t.Errorf("%s, %d bytes at a time: got %q, want %q", name, n, got.String(), c.want)
			}
		}
	}
}
