package debugfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// perf has written its cache in two ways.
func TestBinaries(t *testing.T) {
	home := t.TempDir()
	const id, old = "0123456789abcdef0123456789abcdef01234567", "ff23456789abcdef0123456789abcdef01234567"
	write := func(name string) string {
		name = filepath.Join(home, ".debug", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	elf := write(".build-id/01/" + id[2:] + "/elf")
	oldELF := write(".build-id/ff/" + old[2:])
	kallsyms := write("[kernel.kallsyms]/" + id + "/kallsyms")
	f, err := New(Config{Root: "/copy", Host: "/host", Release: "test", Getenv: func(name string) string { return map[string]string{"HOME": home}[name] }})
	if err != nil {
		t.Fatal(err)
	}
	two := []Place{{"/copy", "/bin/a"}, {"/", "/bin/a"}}
	for build, want := range map[string][]Place{
		id:               append(two[:2:2], Place{"/", elf}),
		old:              append(two[:2:2], Place{"/", oldELF}),
		"":               two,
		"../../../../id": two, // from a file
	} {
		if diff := cmp.Diff(want, f.Binaries("/bin/a", build)); diff != "" {
			t.Errorf("build ID %q (-want +got):\n%s", build, diff)
		}
	}
	if got := f.CachedKallsyms(id); got != kallsyms {
		t.Errorf("got %q, want %q", got, kallsyms)
	}
	if got := f.CachedKallsyms("../" + id); got != "" {
		t.Errorf("got %q for no build ID", got)
	}
	if diff := cmp.Diff([]Place{{"/", "/bin/a"}}, (*Finder)(nil).Binaries("/bin/a", id)); diff != "" {
		t.Error(diff)
	}
}
