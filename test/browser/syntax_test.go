package browser

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// Source lines keep their text, whatever is colored.
func TestSyntax(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	script := pageScript(c)
	for _, test := range []struct {
		file  string
		lines []string
		want  [][][2]string
	}{
		{"/src/a.c", []string{`	return f("a \" // b", 'x', 0x1F); // why`, "/* one", "two */ if (x) {", "/* whole */ y", "<script>"}, [][][2]string{
			{{"", "\t"}, {"keyword", "return"}, {"", " f("}, {"string", `"a \" // b"`}, {"", ", "}, {"string", "'x'"}, {"", ", "}, {"number", "0x1F"}, {"", "); "}, {"comment", "// why"}},
			{{"comment", "/* one"}},
			{{"comment", "two */"}, {"", " "}, {"keyword", "if"}, {"", " (x) {"}},
			{{"comment", "/* whole */"}, {"", " y"}},
			{{"", "<script>"}},
		}},
		{"/src/a.py", []string{"def f(): # x"}, [][][2]string{{{"keyword", "def"}, {"", " f(): "}, {"comment", "# x"}}}},
		{"/src/a.rs", []string{"#[inline] fn f<'a>()"}, [][][2]string{{{"", "#["}, {"keyword", "inline"}, {"", "] "}, {"keyword", "fn"}, {"", " f<'a>()"}}}},
	} {
		var got [][][2]string
		c.eval(script(fmt.Sprintf(`((syntax) => [%s].map((line) => syntax.parts(line)))(new Syntax(%q))`, quoted(test.lines), test.file)), &got)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.file, diff)
		}
	}
	expectClean(c)
}

// quoted returns lines as elements of an array.
func quoted(lines []string) (list string) {
	for _, line := range lines {
		list += fmt.Sprintf("%q,", line)
	}
	return list
}
