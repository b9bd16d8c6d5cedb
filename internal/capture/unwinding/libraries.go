package unwinding

import (
	"debug/elf"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"fulgur/internal/process"
)

// maxLibraries limits the libraries that are searched.
const maxLibraries = 256

// Libraries returns the files that the dynamic loader will map for process pid,
// which has just started. It is only used to prepare for them, so it ignores
// unusual ways of finding libraries.
func Libraries(processes *process.Table, pid int) []*process.File {
	var files []*process.File
	for _, m := range processes.Mappings(pid) {
		if m.File != nil {
			files = append(files, m.File)
		}
	}
	known := len(files)
	found := make([]string, known) // the directories in which the files were found
	for i, f := range files {
		found[i] = path.Dir(f.Path)
	}
	seen := map[string]bool{}
	for i := 0; i < len(files) && len(files) < maxLibraries; i++ {
		names, dirs := imports(files[i], found[i])
		if i == 0 {
			names = append(names, preloaded()...)
		}
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name] = true
			in := dirs
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

// imports returns the names of the libraries that a file needs, and the directories
// to search; see ld.so(8). The dynamic loader found the file in the directory origin, even if that
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
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	for _, dir := range []string{"/lib", "/usr/lib", "/usr/local/lib"} {
		dirs = append(dirs, path.Join(dir, triplet), dir+"64", dir)
	}
	return names, dirs
}
