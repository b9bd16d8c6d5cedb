package debugfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

func TestRemedies(t *testing.T) {
	list := func(name string) string { return "/var/lib/dpkg/info/" + name + ".list" }
	container := tree{
		list("app"):                           "/.\n/usr\n/usr/bin\n/usr/bin/app\n",
		list("libfoo1:" + runtime.GOARCH):     "/lib/libfoo.so.1\n",
		list("libc6:" + runtime.GOARCH):       "/lib/x86_64-linux-gnu/libc.so.6\n",
		list("libc6:i386"):                    "/lib/i386-linux-gnu/libc.so.6\n",
		"/var/lib/dpkg/info/app.md5sums":      "/usr/bin/other\n",
		"/var/lib/dpkg/info/app.list.orig":    "/usr/bin/other\n",
		"/var/lib/dpkg/info/dir.list/no-list": "",
	}.write(t)
	bare := t.TempDir()
	files := []Stripped{
		{container, "/usr/bin/app", id},
		{container, "/usr/lib/libfoo.so.1", id},
		{container, "/lib/x86_64-linux-gnu/libc.so.6", ""},
		{container, "/lib/i386-linux-gnu/libc.so.6", id},
		{container, "/usr/bin/other", id},
		{bare, "/usr/bin/app", id},
		{bare, "/usr/bin/app", ""},
		{"", "/usr/bin/app", id},
	}
	for _, tt := range []struct {
		urls string
		want []string
	}{
		{"", []string{
			"install app-dbgsym or set DEBUGINFOD_URLS",
			"install libfoo1-dbgsym or set DEBUGINFOD_URLS",
			"install libc6-dbg",
			"install libc6-dbg:i386 or set DEBUGINFOD_URLS",
			"set DEBUGINFOD_URLS",
			"set DEBUGINFOD_URLS",
			"build it with -g, or do not strip it",
			"set DEBUGINFOD_URLS",
		}},
		{"http://localhost", []string{
			"install app-dbgsym",
			"install libfoo1-dbgsym",
			"install libc6-dbg",
			"install libc6-dbg:i386",
			"add a server that has it to DEBUGINFOD_URLS",
			"add a server that has it to DEBUGINFOD_URLS",
			"build it with -g, or do not strip it",
			"add a server that has it to DEBUGINFOD_URLS",
		}},
	} {
		finder := newFinder(t, Config{Getenv: environment(map[string]string{"DEBUGINFOD_URLS": tt.urls, "HOME": bare})})
		if got := finder.Remedies(files); !slices.Equal(got, tt.want) {
			t.Errorf("%q: got\n%s\nwant\n%s", tt.urls, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// A package that apt does not know is not a remedy by itself.
func TestRemediesArchive(t *testing.T) {
	const (
		main  = "/var/lib/apt/lists/deb.example_debian_dists_bookworm_main_binary-amd64_Packages.lz4"
		debug = "/var/lib/apt/lists/deb.example_debian-debug_dists_bookworm-debug_main_binary-amd64_Packages"
		ddebs = "/var/lib/apt/lists/ddebs.example_dists_noble_main_binary-amd64_Packages"
	)
	debian, ubuntu := "ID=debian\nVERSION_CODENAME=bookworm\n", "ID=ubuntu\nVERSION_CODENAME='noble'\n"
	for _, c := range []struct {
		name    string
		release string
		lists   []string
		path    string
		want    string
	}{
		{"Debian", debian, []string{main}, "/usr/bin/app", `install app-dbgsym (add the archive debian-debug, suite bookworm-debug, to apt's sources)`},
		{"the C library", debian, []string{main}, "/lib/libc.so.6", "install libc6-dbg"},
		{"with the archive", debian, []string{main, debug}, "/usr/bin/app", "install app-dbgsym"},
		{"Ubuntu", ubuntu, []string{main}, "/usr/bin/app", `install app-dbgsym (add the archive ddebs, suite noble, to apt's sources)`},
		{"Ubuntu with the archive", ubuntu, []string{main, ddebs}, "/usr/bin/app", "install app-dbgsym"},
		{"another distribution", "ID=other\nVERSION_CODENAME=x\n", []string{main}, "/usr/bin/app", "install app-dbgsym"},
		{"a release without a name", "ID=debian\n", []string{main}, "/usr/bin/app", "install app-dbgsym"},
		{"a hostile name", "ID=debian\nVERSION_CODENAME=\"x; rm\"\n", []string{main}, "/usr/bin/app", "install app-dbgsym"},
		{"no lists", debian, nil, "/usr/bin/app", "install app-dbgsym"},
		{"empty lists", debian, []string{"/var/lib/apt/lists/lock"}, "/usr/bin/app", "install app-dbgsym"},
	} {
		files := tree{
			"/etc/os-release":               c.release,
			"/var/lib/dpkg/info/app.list":   "/usr/bin/app\n",
			"/var/lib/dpkg/info/libc6.list": "/lib/libc.so.6\n",
		}
		for _, list := range c.lists {
			files[list] = ""
		}
		finder := newFinder(t, Config{Getenv: environment(nil)})
		if got := finder.Remedies([]Stripped{{files.write(t), c.path, ""}}); got[0] != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got[0], c.want)
		}
	}
}

// The packages of files are found once, by whatever name their root has.
func TestRemediesKept(t *testing.T) {
	owns, bare := tree{"/var/lib/dpkg/info/app.list": "/usr/bin/app\n/usr/bin/other\n"}.write(t), t.TempDir()
	list := filepath.Join(owns, "var", "lib", "dpkg", "info", "app.list")
	alias := filepath.Join(t.TempDir(), "root")
	lead := func(to string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(alias), os.Symlink(to, alias)); err != nil {
			t.Fatal(err)
		}
	}
	finder := newFinder(t, Config{Getenv: environment(nil)})
	check := func(root, path, want string) {
		t.Helper()
		if got := finder.Remedies([]Stripped{{root, path, ""}}); got[0] != want {
			t.Errorf("%s below %s: got %q, want %q", path, root, got[0], want)
		}
	}
	const found, none = "install app-dbgsym", "build it with -g, or do not strip it"
	lead(owns)
	check(owns, "/usr/bin/app", found)
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	check(owns, "/usr/bin/app", found)
	check(alias, "/usr/bin/app", found)
	lead(filepath.Join(bare, "gone"))
	check(alias, "/usr/bin/app", found) // its process has exited
	lead(bare)
	check(alias, "/usr/bin/app", none) // another process has its ID
	check(owns, "/usr/bin/app", found)
	check(owns, "/usr/bin/other", none) // it was not asked for while there was a list
}

// A search for packages that nobody needs any more does not begin.
func TestFindPackages(t *testing.T) {
	owns := tree{"/var/lib/dpkg/info/app.list": "/usr/bin/app\n"}.write(t)
	for name, needed := range map[string]bool{"needed": true, "not needed": false} {
		t.Run(name, func(t *testing.T) {
			finder, stop := newFinder(t, Config{Getenv: environment(nil)}), make(chan struct{})
			if !needed {
				close(stop)
			}
			finder.FindPackages([]Stripped{{owns, "/usr/bin/app", ""}}, stop)
			if got := len(finder.owners.known) > 0; got != needed {
				t.Errorf("searched: got %t, want %t", got, needed)
			}
		})
	}
}

// A database that cannot be read does not mean that a file has no package.
func TestRemediesUnread(t *testing.T) {
	owns := tree{"/var/lib/dpkg/info/app.list": "/usr/bin/app\n"}.write(t)
	info, moved := filepath.Join(owns, "var", "lib", "dpkg", "info"), filepath.Join(owns, "moved")
	finder := newFinder(t, Config{Getenv: environment(nil)})
	for _, step := range []struct{ from, to, want string }{
		{info, moved, "build it with -g, or do not strip it"},
		{moved, info, "install app-dbgsym"},
	} {
		if err := os.Rename(step.from, step.to); err != nil {
			t.Fatal(err)
		}
		if got := finder.Remedies([]Stripped{{owns, "/usr/bin/app", ""}}); got[0] != step.want {
			t.Errorf("database in %s: got %q, want %q", step.to, got[0], step.want)
		}
	}
}

// A file built on this machine has no package, even if a package list contains its path.
// The lists are not sorted by path.
func TestPackages(t *testing.T) {
	root := tree{
		"/var/lib/dpkg/info/a.list":   "/usr/local/bin/tool\n/usr/bin/zig\n",
		"/var/lib/dpkg/info/zig.list": "/usr/bin/other\n",
	}.write(t)
	got, err := packages(root, []string{"/usr/local/bin/tool", "/usr/bin/zig"})
	if err != nil || len(got) != 1 || got["/usr/bin/zig"] != "a" {
		t.Errorf("got %v, %v, want only zig's package", got, err)
	}
	names := []string{"apt.list", "bash.list", "libc6:amd64.list", "libcurl4:amd64.list", "zlib1g.list"}
	if got := likelyFirst(names, []string{"/lib/libcurl.so.4", "/bin/bash"}); got[0] != "libcurl4:amd64.list" || got[1] != "bash.list" {
		t.Errorf("got the order %v, want libcurl4 and bash first", got)
	}
}

// TestDpkg compares with dpkg -S on this machine.
func TestDpkg(t *testing.T) {
	dpkg := testenv.Tool(t, "dpkg")
	owned := 0
	for _, name := range []string{"/usr/bin/bash", "/bin/bash", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"} {
		out, err := exec.CommandContext(t.Context(), dpkg, "-S", name).Output()
		if err != nil {
			continue // the package list has another name of the file
		}
		owned++
		want, _, _ := strings.Cut(string(out), ": ")
		want = strings.TrimSuffix(want, ":"+runtime.GOARCH)
		for _, alias := range usrMerged(name) {
			if got, err := packages("/", []string{alias}); err != nil || got[alias] != want {
				t.Errorf("%s: got %q, %v, want dpkg's %s", alias, got[alias], err, want)
			}
		}
	}
	if owned == 0 {
		testenv.Skip(t, "needs files that dpkg knows: no package has any of the tested ones")
	}
}
