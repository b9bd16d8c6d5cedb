package debugfile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"fulgur/internal/linux/capability"
	"fulgur/internal/symbols/elffile"
)

// maxSysFile bounds the size of a file in /sys, in bytes.
const maxSysFile = 64 << 10

// Kernel returns the running kernel's vmlinux with debug info. Its build ID must match
// /sys/kernel/notes, since a rebuilt kernel has the same release but different code. The
// caller closes the file. If none is found, the error wraps [ErrNotFound] and lists why
// candidates were rejected.
func (f *Finder) Kernel(ctx context.Context) (*File, error) {
	s := &search{what: "vmlinux of kernel " + f.release}
	id, err := f.KernelBuildID("")
	if err != nil {
		return nil, fmt.Errorf("%s: build ID of the running kernel: %w", s.what, err)
	}
	return f.vmlinux(ctx, s, id, []string{f.release}, hasDebugInfo)
}

// KernelByBuildID returns the vmlinux with code and debug info of the kernel with this build
// ID in lowercase hex. It looks among the running kernel and the kernels whose debug info is
// installed. The caller closes the file. If none is found, the error wraps [ErrNotFound] and
// lists why candidates were rejected.
func (f *Finder) KernelByBuildID(ctx context.Context, id string) (*File, error) {
	s := &search{what: "vmlinux with build ID " + id}
	if strings.Trim(id, "0123456789abcdef") != "" {
		return nil, s.err() // it becomes part of a path
	}
	releases := []string{f.release}
	for _, root := range f.roots("") {
		installed, err := os.ReadDir(filepath.Join(root, debugDir, "lib", "modules"))
		if err != nil {
			continue
		}
		for _, e := range installed[:min(len(installed), maxReleases)] {
			if e.Name() != f.release {
				releases = append(releases, e.Name())
			}
		}
	}
	return f.vmlinux(ctx, s, id, releases, func(c *elffile.File) error {
		if c.Section(".text") == nil {
			return errors.New("no code in it")
		}
		return hasDebugInfo(c)
	})
}

// maxReleases bounds the installed kernels to search.
const maxReleases = 100

// vmlinux returns the file with the given build ID of a kernel of one of the releases, for
// which check returns no error.
func (f *Finder) vmlinux(ctx context.Context, s *search, id string, releases []string, check func(*elffile.File) error) (*File, error) {
	accept := func(c *elffile.File) error { return errors.Join(sameBuildID(c, id), check(c)) }
	for _, root := range f.roots("") {
		for _, release := range releases {
			for _, name := range []string{
				debugDir + "/boot/vmlinux-" + release,
				debugDir + "/lib/modules/" + release + "/vmlinux",
				debugDir + "/usr/lib/modules/" + release + "/vmlinux",
				debugDir + "/lib/modules/" + release + "/vmlinux.debug",
				"/lib/modules/" + release + "/build/vmlinux",
				"/lib/modules/" + release + "/vmlinux",
				"/boot/vmlinux-" + release,
			} {
				if found := s.open(root, name, accept); found != nil {
					return found, nil
				}
			}
		}
	}
	if found := f.byBuildID(s, "", id, accept); found != nil {
		return found, nil
	}
	if found := f.download(ctx, s, id); found != nil {
		return found, nil
	}
	return nil, s.err()
}

// Module is the debug file of a loaded kernel module. It is a relocatable file (ET_REL):
// its sections have address 0 in the file, and are loaded separately.
type Module struct {
	*File
	// Sections maps the names of loaded sections to their kernel addresses. They are all
	// 0 if kernel addresses are hidden from this process (kptr_restrict).
	Sections map[string]uint64
}

// Module returns the debug file of a loaded kernel module with a name from /proc/modules. The
// caller closes it. If none is found, the error wraps [ErrNotFound] and lists why candidates
// were rejected.
func (f *Finder) Module(ctx context.Context, name string) (*Module, error) {
	if strings.Contains(name, "/") || strings.HasPrefix(name, ".") || name == "" {
		return nil, fmt.Errorf("%q is not the name of a module", name)
	}
	s := &search{what: "debug file of kernel module " + name}
	id, err := f.KernelBuildID(name)
	if err != nil {
		return nil, fmt.Errorf("%s: build ID of the loaded module: %w", s.what, err)
	}
	sections, err := f.sectionAddresses("/sys/module/" + name + "/sections")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.what, err)
	}
	accept := func(c *elffile.File) error { return errors.Join(sameBuildID(c, id), hasDebugInfo(c)) }
	found := f.byBuildID(s, "", id, accept)
	for _, root := range f.roots("") {
		if found != nil {
			break
		}
		found = f.moduleFile(s, root, name, accept)
	}
	if found == nil {
		found = f.download(ctx, s, id)
	}
	if found == nil {
		return nil, s.err()
	}
	return &Module{found, sections}, nil
}

// moduleFile looks for a module's debug file below root by the module's path.
func (f *Finder) moduleFile(s *search, root, name string, accept func(*elffile.File) error) *File {
	dir := "/lib/modules/" + f.release
	dep, err := openFile(root, dir+"/modules.dep")
	if err != nil {
		return nil // this root has no modules for this kernel
	}
	defer func() { _ = dep.Close() }()
	module, ok := modulePath(dep, name)
	if !ok {
		return nil
	}
	for _, name := range []string{
		path.Join(debugDir, dir, module) + ".debug",
		path.Join(debugDir, "usr", dir, module) + ".debug",
		path.Join(debugDir, dir, module),
		path.Join(debugDir, "usr", dir, module),
		path.Join(dir, module), // built with debug info and not stripped
	} {
		if found := s.open(root, name, accept); found != nil {
			return found
		}
	}
	return nil
}

// modulePath finds a module in modules.dep(5), which has a line per module with its path
// before the first colon. It returns the path relative to the release's directory and
// without the suffix of a compressed module. ok is false if the module is not listed.
func modulePath(dep io.Reader, name string) (module string, ok bool) {
	const maxLine = 1 << 20
	// The kernel treats "-" and "_" in module names as equal.
	name = strings.ReplaceAll(name, "-", "_")
	lines := bufio.NewScanner(dep)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		module, _, _ := strings.Cut(lines.Text(), ":")
		for _, ending := range []string{".gz", ".xz", ".zst"} {
			module = strings.TrimSuffix(module, ending)
		}
		base, ok := strings.CutSuffix(path.Base(module), ".ko")
		if ok && strings.ReplaceAll(base, "-", "_") == name {
			return module, true
		}
	}
	return "", false
}

// KernelBuildID returns the build ID in lowercase hex of the running kernel, or of a
// loaded module if module is not empty.
func (f *Finder) KernelBuildID(module string) (string, error) {
	if module == "" {
		return f.noteBuildID("/sys/kernel/notes")
	}
	return f.noteBuildID("/sys/module/" + module + "/notes/.note.gnu.build-id")
}

// noteBuildID returns the build ID in a file of notes.
func (f *Finder) noteBuildID(name string) (string, error) {
	b, err := readSys(filepath.Join(f.host, name))
	if err != nil {
		return "", err
	}
	id := elffile.NoteBuildID(b, 4)
	if id == "" {
		return "", fmt.Errorf("%s has none", name)
	}
	return id, nil
}

// sectionAddresses reads the addresses of a module's sections: a file for each section
// with a hexadecimal number.
func (f *Finder) sectionAddresses(dir string) (map[string]uint64, error) {
	dir = filepath.Join(f.host, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sections := make(map[string]uint64, len(entries))
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		b, err := readSys(name)
		if err != nil {
			return nil, err
		}
		text := strings.TrimSpace(string(b))
		addr, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not an address", name, text)
		}
		sections[e.Name()] = addr
	}
	return sections, nil
}

// readSys reads a small file in /sys. Only root may read files with addresses.
func readSys(name string) ([]byte, error) {
	file, err := capability.With(capability.SetOf(capability.DACReadSearch), func() (*os.File, error) { return os.Open(name) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxSysFile))
}
