package unwinding

import (
	"debug/elf"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"fulgur/internal/process"
)

// maxLibraries limits the libraries that are searched.
const maxLibraries = 256

// Libraries returns the files that the dynamic loader will map for process pid,
// which has just started. It is only used to prepare for them, so it ignores
// unusual ways of finding libraries.
func Libraries(processes *process.Table, pid int) []*process.File {
	files := process.Files(processes.Mappings(pid))
	known := len(files)
	found := make([]string, known) // the directories in which the files were found
	for i, f := range files {
		found[i] = path.Dir(f.Path)
	}
	seen := map[string]bool{}
	l := loaderOf(processes, pid, files)
	for i := 0; i < len(files) && len(files) < maxLibraries; i++ {
		names, dirs := imports(files[i], found[i])
		if i == 0 {
			names = append(names, preloaded()...)
		}
		for _, name := range names {
			if seen[name] || l.has(name) {
				continue
			}
			seen[name] = true
			in := slices.Concat(dirs, l.dirs)
			if path.IsAbs(name) {
				in = []string{"/"}
			}
			for _, dir := range in {
				at := path.Join(dir, name)
				if f, err := processes.Open(pid, at); err == nil {
					files, found = append(files, f), append(found, path.Dir(at))
					break
				}
			}
		}
	}
	return files[known:]
}

// preloaded returns the libraries that the loader has to map first; see ld.so(8).
func preloaded() []string {
	return strings.FieldsFunc(os.Getenv("LD_PRELOAD"), func(r rune) bool { return r == ':' || r == ' ' })
}

// loader describes a dynamic loader.
type loader struct {
	// dirs are the system's directories of libraries.
	dirs []string
	// musl is whether it is musl's, which is the C library, too.
	musl bool
}

// has reports whether the loader contains a library, and so does not search it.
func (l *loader) has(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	return l.musl && slices.Contains([]string{"libc", "libpthread", "librt", "libm", "libdl", "libutil", "libxnet"}, stem)
}

// loaderOf returns the dynamic loader of process pid, whose program is one of files.
func loaderOf(processes *process.Table, pid int, files []*process.File) *loader {
	for _, f := range files {
		interpreter := interpreterOf(f)
		if name, ok := strings.CutPrefix(path.Base(interpreter), "ld-musl-"); ok {
			arch, _, _ := strings.Cut(name, ".")
			config := path.Join(path.Dir(path.Dir(interpreter)), "etc", "ld-musl-"+arch+".path")
			return &loader{musl: true, dirs: muslDirs(processes, pid, config)}
		}
	}
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	l := &loader{}
	for _, dir := range []string{"/lib", "/usr/lib", "/usr/local/lib"} {
		l.dirs = append(l.dirs, path.Join(dir, triplet), dir+"64", dir)
	}
	return l
}

// interpreterOf returns the path of a program's dynamic loader, or "".
func interpreterOf(f *process.File) string {
	r, size, err := f.ReaderAt()
	if err != nil {
		return ""
	}
	file, err := elf.NewFile(io.NewSectionReader(r, 0, size))
	if err != nil {
		return ""
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz <= 4096 {
			name, _ := io.ReadAll(p.Open())
			return strings.TrimRight(string(name), "\x00")
		}
	}
	return ""
}

// muslDirs returns the directories that musl's loader searches, which the file config lists.
func muslDirs(processes *process.Table, pid int, config string) []string {
	list := "/lib:/usr/local/lib:/usr/lib"
	if f, err := processes.Open(pid, config); err == nil {
		if r, size, err := f.ReaderAt(); err == nil {
			if b, err := io.ReadAll(io.NewSectionReader(r, 0, min(size, 1<<16))); err == nil {
				list = string(b)
			}
		}
	}
	return strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == '\n' })
}

// imports returns the names of the libraries that a file needs, and the directories
// to search before the system's; see ld.so(8). The dynamic loader found the file in the directory origin, even if that
// has only a link to it.
func imports(f *process.File, origin string) (names, dirs []string) {
	r, size, err := f.ReaderAt()
	if err != nil {
		return nil, nil
	}
	file, err := elf.NewFile(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, nil
	}
	if names, err = file.ImportedLibraries(); err != nil {
		return nil, nil
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		paths, err := file.DynString(tag)
		if err != nil {
			continue
		}
		for _, p := range paths {
			inOrigin := strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin)
			dirs = append(dirs, filepath.SplitList(inOrigin.Replace(p))...)
		}
	}
	dirs = append(dirs, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	return names, dirs
}
