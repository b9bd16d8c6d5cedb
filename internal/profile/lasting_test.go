package profile

import "testing"

func TestLasting(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"parse", "", "parse"},
		{"parse.cold", "parse.c", "parse"},
		{"parse.cold.12", "", "parse"},
		{"parse.isra.0.cold", "", "parse"},
		{"parse.part.3", "", "parse"},
		{"parse.constprop.0.isra.1", "", "parse"},
		{"parse.llvm.1234567890", "", "parse"},
		{"parse.lto_priv.0", "", "parse"},
		{"main.cold", "main.go", "main.cold"},
		{"main.part", "", "main.part"},
		{"Parser::run(int) [clone .isra.0] [clone .cold]", "", "Parser::run(int)"},
		{"Parser::run(int) (.cold.1)", "", "Parser::run(int)"},
		{"app::run::h0123456789abcdef", "", "app::run"},
		{"app::run::hello", "", "app::run::hello"},
		{"app[317d481089b8c8fe]::run", "", "app::run"},
		{"<app[317d481089b8c8fe]::A as core[a1b2c3d4e5f60718]::B>::run", "", "<app::A as core::B>::run"},
		{"pkg.Map[int].get", "", "pkg.Map[int].get"},
		{"JS:*render /srv/app.js:12:3", "", "JS:render /srv/app.js"},
		{"JS:~render /srv/app.js:9:3", "", "JS:render /srv/app.js"},
		{"map (node:internal/a:1)", "", "map (node:internal/a)"},
		{"(anonymous) /srv/app.js:1:1", "", "(anonymous) /srv/app.js:1:1"},
		{".cold", "", ".cold"},
		{"", "", ""},
	} {
		if got := lasting(c.name, c.file); got != c.want {
			t.Errorf("%q: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestLastingLinked(t *testing.T) {
	for _, c := range []struct{ linked, want string }{
		{"_Z5parsei.cold", "_Z5parsei"},
		{"_ZN3app3run17h0123456789abcdefE", "_ZN3app3runE"},
		{"_ZN3app3run17h0123456789abcdefE.llvm.7", "_ZN3app3runE"},
		{"_RNvCskwGfYPst2Cb_3app3run", "app::run"},
	} {
		if got := lastingLinked(c.linked, "app::run"); got != c.want {
			t.Errorf("%q: got %q, want %q", c.linked, got, c.want)
		}
	}
}

// What remains of a name is a part of it that does not change again.
func FuzzLasting(f *testing.F) {
	f.Add("app::run::h0123456789abcdef", "")
	f.Add("parse.isra.0.cold [clone .cold]", "a.c")
	f.Fuzz(func(t *testing.T, name, file string) {
		got := lasting(name, file)
		if len(got) > len(name) || got == "" && name != "" {
			t.Errorf("%q: got %q", name, got)
		}
	})
}
