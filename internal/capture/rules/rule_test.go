package rules

import (
	"strings"
	"testing"
	"time"

	"fulgur/internal/containers"
	"fulgur/internal/profile"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "a", true},
		{"a", "ab", false},
		{"a*", "a", true},
		{"a*", "abc", true},
		{"a*", "ab/c", false},
		{"a**", "ab/c", true},
		{"*c", "abc", true},
		{"*", "", true},
		{"*", "a/b", false},
		{"**", "/a/b", true},
		{"?", "a", true},
		{"?", "/", false},
		{"?", "", false},
		{"a?c*e", "abcde", true},
		{"/usr/*/x", "/usr/bin/x", true},
		{"/usr/*/x", "/usr/a/b/x", false},
		{"/usr/**/x", "/usr/a/b/x", true},
		{"/usr/**/x", "/usr/x", true},
		{"/usr/**/x", "/usrx", false},
		{"**/x", "x", true},
		{"a**/x", "ax", false},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{`a\\`, `a\`, true},
		{strings.Repeat("*a", 50) + "b", strings.Repeat("a", 500), false},
	} {
		if got := match(c.pattern, c.name); got != c.want {
			t.Errorf("%q matches %q: got %v", c.pattern, c.name, got)
		}
	}
}

// TestParse reads rules, and refuses wrong ones with what is possible.
func TestParse(t *testing.T) {
	place := containers.Place{
		Owner:  profile.Owner{Unit: "nginx.service", ContainerID: "0a1b", Container: "web", Pod: "api-1", Namespace: "shop"},
		Paths:  []string{"/system.slice/nginx.service/worker"},
		Labels: map[string]string{"app": "api", "org.example/team": "a/b,c"},
	}
	for text, want := range map[string]bool{
		"unit=nginx":                         true,
		"unit=nginx.service":                 true,
		"unit=ngin*":                         true,
		"unit=ngin":                          false,
		"unit=nginx.socket":                  false,
		"cgroup=/system.slice":               true,
		"cgroup=/system.slice/":              true,
		"cgroup=/system.slice/**":            true,
		"cgroup=/system.slice/nginx.service": true,
		"cgroup=/system":                     false,
		"cgroup=/*/nginx.service":            true,
		"cgroup=/**/worker":                  true,
		"cgroup=**/nginx*":                   true,
		"cgroup=/":                           true,
		"cgroup=/**":                         true,
		"pod=api-*":                          true,
		"pod=shop/api-*":                     true,
		"pod=default/api-*":                  false,
		"namespace=shop":                     true,
		"namespace=sho?":                     true,
		"namespace=SHOP":                     false,
		"container=web":                      true,
		"container=0a*":                      true,
		"label:app=api":                      true,
		"label:app=*":                        true,
		"label:none=*":                       false,
		`label:org.example/team=a/b\,c`:      true,
		"label:org.example/team=a*":          true,
		"namespace=shop,label:app=api":       true,
		"namespace = shop , pod=api-1":       true,
		"namespace=shop,label:app=web":       false,
	} {
		r, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := (Rules{Include: []Rule{r}}).ofGroup(place) == 1; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		if (Rules{Include: []Rule{r}}).ofGroup(containers.Place{}) != 0 {
			t.Errorf("%s matches a process without a place", text)
		}
	}
	for text, want := range map[string]bool{
		"program=/usr/bin/postgres": true,
		"program=postgres":          true,
		"program=post*":             true,
		"program=/usr/**":           true,
		"program=/usr/*":            false,
		"program=/bin/postgres":     false,
		"program=gres":              false,
	} {
		r, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := (Rules{Include: []Rule{r}}).ofProgram("/usr/bin/postgres") == 1; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "as in unit=nginx.service",
		"nginx":                   "cgroup, container, label:KEY, namespace, pod, program, unit or user",
		"=nginx":                  "label:KEY",
		"nmespace=shop":           `"nmespace=shop" is not a rule`,
		"Unit=nginx":              "label:KEY",
		"namespace=shop,":         "label:KEY",
		"namespace=":              "followed by nothing",
		"label:=x":                "key of the label",
		"label:app":               "PROPERTY=PATTERN",
		`pod=a\`:                  "backslash",
		"pod=a/b/c":               "NAMESPACE/NAME",
		"program=bin/sh":          "absolute path",
		"cgroup=system.slice":     "absolute path in the hierarchy",
		"cgroup=/sys/fs/cgroup/a": "cgroup=/a",
		"unit=system.slice":       "cgroup=/**/system.slice",
		"user=no-such-user-here":  "no user of this name",
		"user=4294967295":         "no user of this name",
		"user=-1":                 "no user of this name",
		strings.Repeat("a", 5000): "longer than the maximum",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: got error %v, want %q", text, err, want)
		}
	}
}

// A rule matches if all its terms do, a process is left out if no rule includes it or any excludes it.
func TestLeaves(t *testing.T) {
	parse := func(texts ...string) (all []Rule) {
		for _, text := range texts {
			r, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		return all
	}
	one := containers.Place{Owner: profile.Owner{Unit: "one.service"}}
	for name, c := range map[string]struct {
		include, exclude []string
		user             uint32
		program          string
		want             bool
	}{
		"nothing":             {want: false},
		"age only":            {want: false},
		"included":            {include: []string{"unit=one"}, want: false},
		"not included":        {include: []string{"unit=two"}, want: true},
		"one of two":          {include: []string{"unit=two", "user=7"}, user: 7, want: false},
		"part of a rule":      {include: []string{"unit=one,user=7"}, user: 8, want: true},
		"whole rule":          {include: []string{"unit=one,user=7,program=/a"}, user: 7, program: "/a", want: false},
		"excluded":            {exclude: []string{"user=0"}, want: true},
		"not excluded":        {exclude: []string{"user=1"}, want: false},
		"both":                {include: []string{"unit=one"}, exclude: []string{"program=/a"}, program: "/a", want: true},
		"included except one": {include: []string{"unit=one"}, exclude: []string{"program=/a"}, program: "/b", want: false},
	} {
		r := Rules{Include: parse(c.include...), Exclude: parse(c.exclude...), MinAge: time.Second}
		matched := r.ofUser(c.user) & r.ofProgram(c.program) & r.ofGroup(one)
		if got := r.leaves(matched); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	many := make([]string, maxRules)
	for i := range many {
		many[i] = "user=7"
	}
	r := Rules{Include: parse(many...)}
	if err := r.Check(); err != nil || r.include() != ^set(0) || r.exclude() != 0 || r.leaves(1<<(maxRules-1)) || !r.leaves(0) {
		t.Errorf("the maximum number of rules: got %v, %x, %x", err, r.include(), r.exclude())
	}
	r = Rules{Include: parse("user=1"), Exclude: parse(many...)}
	if err := r.Check(); err == nil {
		t.Error("too many rules: got no error")
	}
}

// Rules with rates come after those that include and exclude.
func TestSlowerRules(t *testing.T) {
	var r Rules
	for _, text := range []string{"5:user=1", " 19 : program=/a:b"} {
		s, err := ParseSlower(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Slower = append(r.Slower, s)
	}
	if r.leaves(0) || !r.Any() || r.Check() != nil {
		t.Error("rules with rates exclude processes")
	}
	user, err := Parse("user=2")
	if err != nil {
		t.Fatal(err)
	}
	r.Include, r.Exclude = []Rule{user}, []Rule{user}
	if each := r.slower(); each[0] != 1<<2 || each[1] != 1<<3 || each[2] != 0 || r.slow() != 0b1100 {
		t.Errorf("got %b, %b", each, r.slow())
	}
	if got := r.ofProgram("/a:b"); got != 0b1111 {
		t.Errorf("got the rules %b", got)
	}
	for rate, want := range map[uint64][2]uint32{0: {1, 1}, 5: {1, 1}, 19: {4, 1}, 99: {20, 5}} {
		if got := r.oneIn(rate); [2]uint32(got[:2]) != want || got[2] != 0 {
			t.Errorf("%d Hz: got one in %d, want %d", rate, got, want)
		}
	}
	for _, text := range []string{"", "5", "namespace=a", "0:user=1", "-1:user=1", "x:user=1", "5:", "5:nothing=1"} {
		if _, err := ParseSlower(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
	for range maxSlower {
		r.Slower = append(r.Slower, r.Slower[0])
	}
	if err := r.Check(); err == nil {
		t.Error("too many rules with rates: got no error")
	}
}

// FuzzParse parses any text. What it accepts has terms that match without a crash, and an equal text.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"unit=nginx", `label:a/b=c\,d,user=0`, "cgroup=/**/x,pod=a/*", "program=**/?", "=,=", `a=\`} {
		f.Add(text, "/a/b")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if r.String() != text || len(r.terms) == 0 {
			t.Errorf("got %q with %d terms", r, len(r.terms))
		}
		name = name[:min(len(name), 200)]
		all := Rules{Include: []Rule{r}}
		place := containers.Place{Owner: profile.Owner{Unit: name, Pod: name, Namespace: name, Container: name, ContainerID: name}, Paths: []string{name}, Labels: map[string]string{name: name}}
		matched := all.ofGroup(place) & all.ofProgram(name) & all.ofUser(0)
		if all.leaves(matched) == (matched == 1) {
			t.Errorf("%q: leaves a process that matches: %v", text, matched == 1)
		}
		for _, tested := range r.terms {
			if !isGlob(tested.pattern) && match(tested.pattern, name) != (tested.pattern == name) {
				t.Errorf("%q matches %q", tested.pattern, name)
			}
		}
	})
}
