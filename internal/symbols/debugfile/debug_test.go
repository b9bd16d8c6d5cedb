package debugfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
	"fulgur/internal/testenv"
)

const byID = "/usr/lib/debug/.build-id/aa/bbccdd.debug"

// TestDebug finds debug files in a process's root.
func TestDebug(t *testing.T) {
	debug := string(image(t, id, debugInfo("right")))
	anonymous := string(image(t, "", debugInfo("right")))
	other := string(image(t, "eeff0011", debugInfo("wrong")))
	stripped := string(image(t, id))
	linked := debugLink("app.debug", crc([]byte(anonymous)))
	for _, tt := range []struct {
		name    string
		id      string
		link    *elftest.Section
		files   tree
		want    string
		problem string
	}{
		{"by build ID", id, nil, tree{byID: debug}, byID, ""},
		{"build ID before link", id, &linked, tree{byID: debug, "/usr/bin/app.debug": anonymous}, byID, ""},
		{"another build ID", id, nil, tree{byID: other}, "", `build ID is "eeff0011", not aabbccdd`},
		{"the binary itself", id, nil, tree{byID: stripped}, "", "neither debug info nor symbols"},
		{"no ELF file", id, nil, tree{byID: "text"}, "", "not an ELF file"},
		{"a link of the file system", id, nil, tree{byID: "->/usr/share/it", "/usr/share/it": debug}, byID, ""},
		{"by link", "", &linked, tree{"/usr/bin/app.debug": anonymous}, "/usr/bin/app.debug", ""},
		{"in .debug", "", &linked, tree{"/usr/bin/.debug/app.debug": anonymous}, "/usr/bin/.debug/app.debug", ""},
		{"by directory", "", &linked, tree{"/usr/lib/debug/usr/bin/app.debug": anonymous}, "/usr/lib/debug/usr/bin/app.debug", ""},
		{"by the directory's other name", "", &linked, tree{"/usr/lib/debug/bin/app.debug": anonymous}, "/usr/lib/debug/bin/app.debug", ""},
		{"another checksum", "", &linked, tree{"/usr/bin/app.debug": other, "/usr/bin/.debug/app.debug": anonymous}, "/usr/bin/.debug/app.debug", ""},
		{"only another checksum", "", &linked, tree{"/usr/bin/app.debug": other}, "", "checksum is "},
		{"the build ID overrules the checksum", id, &linked, tree{"/usr/bin/app.debug": debug}, "/usr/bin/app.debug", ""},
		{"in both ways", id, &linked, tree{"/usr/bin/app.debug": other}, "", "build ID is "},
		{"link to a directory", "", new(debugLink("../app.debug", 1)), tree{"/usr/app.debug": anonymous}, "", "debug link with a directory"},
		{"link to itself", "", new(debugLink("app", 1)), tree{"/usr/bin/app": stripped}, "", "not found"},
		{"malformed link", "", &elftest.Section{Name: ".gnu_debuglink"}, nil, "", "malformed .gnu_debuglink"},
		{"nothing", id, &linked, nil, "", "debug file of app: not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sections []elftest.Section
			if tt.link != nil {
				sections = append(sections, *tt.link)
			}
			root := tt.files.write(t)
			b := binaryAt(t, root, image(t, tt.id, sections...))
			f, err := newFinder(t, Config{}).Debug(t.Context(), b)
			found(t, f, err, root, tt.want, tt.problem)
			if err != nil && !errors.Is(err, ErrNotFound) {
				t.Errorf("got error %v, want ErrNotFound", err)
			}
		})
	}
}

// TestLinkOutside checks that links in a process's root, such as a container's, do not
// lead to files of the host.
func TestLinkOutside(t *testing.T) {
	outside := tree{"file": string(image(t, id, debugInfo("outside")))}.write(t)
	for _, link := range []string{outside + "/file", "../../../../../../../../../../../../.." + outside + "/file", "/proc/self/root" + outside + "/file"} {
		root := tree{byID: "->" + link}.write(t)
		f, err := newFinder(t, Config{}).Debug(t.Context(), binaryAt(t, root, image(t, id)))
		found(t, f, err, root, "", "not found")
	}
}

// TestUnstripped finds a copy of the binary below the given root if only the copy has debug
// info.
func TestUnstripped(t *testing.T) {
	for name, copied := range map[string]struct {
		image string
		want  string
	}{
		"not stripped":     {string(image(t, id, debugInfo("copy"))), "/usr/bin/app"},
		"stripped":         {string(image(t, id)), ""},
		"another build ID": {string(image(t, "eeff0011", debugInfo("other"))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree{"/usr/bin/app": copied.image}.write(t)
			b := binaryAt(t, tree{}.write(t), image(t, id))
			f, err := newFinder(t, Config{Root: root}).Debug(t.Context(), b)
			found(t, f, err, root, copied.want, "not found")
		})
	}
}

// TestRoots checks the order of search: the given system, the process's root, the host.
func TestRoots(t *testing.T) {
	files := tree{byID: string(image(t, id, debugInfo("right")))}
	given, process, host, none := files.write(t), files.write(t), files.write(t), t.TempDir()
	for _, tt := range []struct{ given, process, host, want string }{
		{given, process, host, given},
		{"", process, host, process},
		{none, process, host, process},
		{none, none, host, host},
		{none, "", host, host},
		{none, filepath.Join(none, "missing"), host, host},
	} {
		f, err := newFinder(t, Config{Root: tt.given, Host: tt.host}).Debug(t.Context(), binaryAt(t, tt.process, image(t, id)))
		found(t, f, err, tt.want, byID, "")
	}
}

// TestPipe checks that only regular files are opened: opening a pipe may block, and
// unblocks a process that waits in open.
func TestPipe(t *testing.T) {
	root := tree{filepath.Dir(byID) + "/x": ""}.write(t)
	pipe := filepath.Join(root, byID)
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		if f, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil {
			f.Close()
		}
	}()
	// A binary can name files of the host too.
	for range 50 {
		f, err := newFinder(t, Config{}).Debug(t.Context(), binaryAt(t, root, image(t, id)))
		found(t, f, err, root, "", "not a regular file")
		f, err = newFinder(t, Config{}).DWO(binaryAt(t, "/", image(t, id)), "/", pipe, func(*elffile.File) error { return nil })
		found(t, f, err, "/", "", "not a regular file")
	}
	select {
	case <-opened:
		t.Error("the pipe was opened")
	default:
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0) // unblocks the writer
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	testenv.Receive(t, opened, "the writer is still blocked")
}

// TestDevice checks that a device named by a binary is not opened.
func TestDevice(t *testing.T) {
	f, err := newFinder(t, Config{}).DWO(binaryAt(t, "/", image(t, id)), "/", "/dev/null", func(*elffile.File) error { return nil })
	found(t, f, err, "/", "", "/dev/null: not a regular file")
}

func TestUsrMerged(t *testing.T) {
	for name, want := range map[string][]string{
		"/usr/bin/a":     {"/usr/bin/a", "/bin/a"},
		"/lib64/a":       {"/lib64/a", "/usr/lib64/a"},
		"/usr/local/bin": {"/usr/local/bin"},
		"/opt/lib/a":     {"/opt/lib/a"},
		"/usrlib/a":      {"/usrlib/a"},
		"/":              {"/"},
	} {
		if got := usrMerged(name); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestAlt(t *testing.T) {
	const shared = "11223344"
	right, wrong := string(image(t, shared, debugInfo("shared"))), string(image(t, "55667788"))
	for _, tt := range []struct {
		name, link string
		files      tree
		want       string
		problem    string
	}{
		{"absolute", "/usr/lib/debug/.dwz/x86_64-linux-gnu/p.debug", tree{"/usr/lib/debug/.dwz/x86_64-linux-gnu/p.debug": right}, "/usr/lib/debug/.dwz/x86_64-linux-gnu/p.debug", ""},
		{"relative", "../../.dwz/p.debug", tree{"/usr/lib/debug/.dwz/p.debug": right}, "/usr/lib/debug/.dwz/p.debug", ""},
		{"moved", "/build/p.debug", tree{"/usr/lib/debug/.dwz/p.debug": right}, "/usr/lib/debug/.dwz/p.debug", ""},
		{"by build ID", "/build/p.debug", tree{"/usr/lib/debug/.build-id/11/223344.debug": right}, "/usr/lib/debug/.build-id/11/223344.debug", ""},
		{"another", "/build/p.debug", tree{"/build/p.debug": wrong}, "", `ID is "55667788", not 11223344`},
		{"missing", "/build/p.debug", nil, "", "/build/p.debug, which has debug info of app (ID 11223344): not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tt.files.write(t)
			debug := binaryAt(t, root, image(t, id, altLink(t, tt.link, shared)))
			debug.Path = byID
			f, err := newFinder(t, Config{}).Alt(t.Context(), debug)
			found(t, f, err, root, tt.want, tt.problem)
		})
	}
	if f, err := newFinder(t, Config{}).Alt(t.Context(), binaryAt(t, "/", image(t, id))); f != nil || err != nil {
		t.Errorf("file without a link: got %v, %v; want nil", f, err)
	}
}

func TestSplit(t *testing.T) {
	right, wrong := string(image(t, "", debugInfo("right"))), string(image(t, "", debugInfo("wrong")))
	foreign := string(elftest.File{Machine: 183}.Bytes())
	accept := func(f *elffile.File) error {
		data, err := f.Section(".debug_info").Open()
		if err != nil {
			return err
		}
		b := make([]byte, 5)
		if _, err := data.ReadAt(b, 0); err != nil || string(b) != "right" {
			return errors.New("another ID")
		}
		return nil
	}
	for _, tt := range []struct {
		name, dir, dwo string
		files          tree
		want, problem  string
	}{
		{"relative", "/build", "out/a.dwo", tree{"/build/out/a.dwo": right}, "/build/out/a.dwo", ""},
		{"absolute", "/build", "/out/a.dwo", tree{"/out/a.dwo": right}, "/out/a.dwo", ""},
		{"next to the binary", "/build", "out/a.dwo", tree{"/usr/bin/a.dwo": right}, "/usr/bin/a.dwo", ""},
		{"below the binary", "/build", "out/a.dwo", tree{"/usr/bin/out/a.dwo": right}, "/usr/bin/out/a.dwo", ""},
		{"in an unknown directory", ".", "a.dwo", tree{"/usr/bin/a.dwo": right}, "/usr/bin/a.dwo", ""},
		{"an older one", "/build", "a.dwo", tree{"/build/a.dwo": wrong, "/usr/bin/a.dwo": right}, "/usr/bin/a.dwo", ""},
		{"only an older one", "/build", "a.dwo", tree{"/build/a.dwo": wrong}, "", "another ID"},
		{"missing", "/build", "a.dwo", nil, "", "a.dwo, split debug info of app: not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tt.files.write(t)
			f, err := newFinder(t, Config{}).DWO(binaryAt(t, root, image(t, id)), tt.dir, tt.dwo, accept)
			found(t, f, err, root, tt.want, tt.problem)
		})
	}
	for _, tt := range []struct {
		name          string
		files         tree
		want, problem string
	}{
		{"next to the binary", tree{"/usr/bin/app.dwp": right}, "/usr/bin/app.dwp", ""},
		{"next to the debug file", tree{byID + ".dwp": right}, byID + ".dwp", ""},
		{"with the debug files", tree{"/usr/lib/debug/usr/bin/app.dwp": right}, "/usr/lib/debug/usr/bin/app.dwp", ""},
		{"of another architecture", tree{"/usr/bin/app.dwp": foreign}, "", "another architecture: EM_AARCH64"},
		{"missing", nil, "", "package of split debug info of app: not found"},
	} {
		t.Run("package "+tt.name, func(t *testing.T) {
			root := tt.files.write(t)
			b := binaryAt(t, root, image(t, id))
			f, err := newFinder(t, Config{}).DWP(b, &File{File: b.File, Root: root, Path: byID})
			found(t, f, err, root, tt.want, tt.problem)
		})
	}
}

// openAt opens a file of this machine or of a test, with the host's root.
func openAt(t *testing.T, name string) *File {
	t.Helper()
	f, err := elffile.Open(testenv.File(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &File{File: f, Root: "/", Path: name}
}

// TestLibc finds the files of libc6-dbg, on the host and through a process's root.
func TestLibc(t *testing.T) {
	b := openAt(t, "/lib/x86_64-linux-gnu/libc.so.6")
	want := debugDir + "/.build-id/" + b.BuildID()[:2] + "/" + b.BuildID()[2:] + ".debug"
	testenv.File(t, want) // of libc6-dbg
	f, err := newFinder(t, Config{Host: "/"}).Debug(t.Context(), b)
	found(t, f, err, "/", want, "")
	b.Root = "/proc/self/root"
	f, err = newFinder(t, Config{}).Debug(t.Context(), b)
	found(t, f, err, b.Root, want, "")
}

// TestTools finds debug files written by binutils, dwz and GCC.
func TestTools(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte("struct a { int n; }; int f(struct a *a) { return a->n; }\nint main(void) { struct a a = {1}; return f(&a); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	finder := newFinder(t, Config{Host: "/"})

	t.Run("debug link", func(t *testing.T) {
		run(t, dir, "gcc", "-g", "-Wl,--build-id=none", "-o", "linked", "a.c")
		run(t, dir, "objcopy", "--only-keep-debug", "linked", "linked.debug")
		run(t, dir, "strip", "linked")
		run(t, dir, "objcopy", "--add-gnu-debuglink=linked.debug", "linked")
		f, err := finder.Debug(t.Context(), openAt(t, filepath.Join(dir, "linked")))
		found(t, f, err, "/", filepath.Join(dir, "linked.debug"), "")
	})
	t.Run("dwz", func(t *testing.T) {
		for _, name := range []string{"one", "two"} {
			run(t, dir, "gcc", "-g", "-o", name, "a.c")
		}
		run(t, dir, "dwz", "-m", "shared.debug", "-r", "one", "two")
		f, err := finder.Alt(t.Context(), openAt(t, filepath.Join(dir, "one")))
		found(t, f, err, "/", filepath.Join(dir, "shared.debug"), "")
	})
	t.Run("dwz of DWARF 5", func(t *testing.T) {
		for _, name := range []string{"one", "two"} {
			run(t, dir, "gcc", "-g", "-gdwarf-5", "-o", name, "a.c")
		}
		run(t, dir, "dwz", "-5", "-m", "shared5.debug", "-r", "one", "two")
		f, err := finder.Alt(t.Context(), openAt(t, filepath.Join(dir, "one")))
		found(t, f, err, "/", filepath.Join(dir, "shared5.debug"), "")
	})
	t.Run("split", func(t *testing.T) {
		run(t, dir, "gcc", "-g", "-gsplit-dwarf", "-c", "-o", "split.o", "a.c")
		run(t, dir, "gcc", "-o", "split", "split.o")
		f, err := finder.DWO(openAt(t, filepath.Join(dir, "split")), dir, "split.dwo", func(f *elffile.File) error {
			if f.Section(".debug_info.dwo") == nil {
				return errors.New("no .debug_info.dwo")
			}
			return nil
		})
		found(t, f, err, "/", filepath.Join(dir, "split.dwo"), "")
	})
}
