package debugfile

import (
	"os/exec"
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

// A file built on this machine has no package, even if a package list contains its path.
// The lists are not sorted by path.
func TestPackages(t *testing.T) {
	root := tree{
		"/var/lib/dpkg/info/a.list":   "/usr/local/bin/tool\n/usr/bin/zig\n",
		"/var/lib/dpkg/info/zig.list": "/usr/bin/other\n",
	}.write(t)
	got := packages(root, []string{"/usr/local/bin/tool", "/usr/bin/zig"})
	if len(got) != 1 || got["/usr/bin/zig"] != "a" {
		t.Errorf("got %v, want only zig's package", got)
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
			if got := packages("/", []string{alias})[alias]; got != want {
				t.Errorf("%s: got %q, want dpkg's %s", alias, got, want)
			}
		}
	}
	if owned == 0 {
		testenv.Skip(t, "needs files that dpkg knows: no package has any of the tested ones")
	}
}
