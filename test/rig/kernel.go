package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ulikunitz/xz"
)

// kernel is a kernel that can be booted.
type kernel struct {
	series
	release string            // as uname -r prints it
	image   string            // path of its image
	modules map[string]string // paths of its modules, by name, without built-in ones
}

// modules are the modules that tests use: loop devices, which stand in for disks,
// and FUSE.
var modules = []string{"loop", "fuse"}

// fetchKernel returns the newest cloud kernel of a series that apt offers,
// downloading it if needed. The cloud flavor boots fastest, and needs no other
// modules for the tests.
func fetchKernel(ctx context.Context, a *apt, s series) (kernel, error) {
	pkg, err := newestPackage(ctx, a, s)
	if err != nil {
		return kernel{}, err
	}
	k := kernel{series: s, release: strings.TrimPrefix(pkg, imagePrefix)}
	needed, err := a.depends(ctx, pkg)
	if err != nil {
		return k, err
	}
	pkgs := []string{pkg}
	for _, name := range needed {
		if imageParts.MatchString(name) {
			pkgs = append(pkgs, name)
		}
	}
	dir, err := a.fetch(ctx, "kernel-"+k.release, pkgs, func(debs []string, root string) error {
		for _, deb := range debs {
			if err := extractKernel(ctx, deb, root); err != nil {
				return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
			}
		}
		return nil
	})
	if err != nil {
		return k, err
	}
	k.image, k.modules = filepath.Join(dir, "vmlinuz"), map[string]string{}
	if _, err := os.Stat(k.image); err != nil {
		return k, fmt.Errorf("%s holds no image: %w", strings.Join(pkgs, " "), err)
	}
	for _, name := range modules {
		file := filepath.Join(dir, name+".ko")
		if _, err := os.Stat(file); err == nil {
			k.modules[name] = file
		}
	}
	return k, nil
}

const imagePrefix = "linux-image-"

// imageParts matches the packages into which the image's package was split after
// Linux 6.
var imageParts = regexp.MustCompile(`^linux-(binary|modules)-`)

// errNoKernel means that Debian has no kernel of a series.
var errNoKernel = errors.New("no such kernel in Debian")

// newestPackage returns the name of the newest image package of a series. If the
// suite has a later series instead, it returns that one's.
func newestPackage(ctx context.Context, a *apt, s series) (string, error) {
	// The anchors leave out the -unsigned and -dbg variants.
	names, err := a.search(ctx, "^"+imagePrefix+`[0-9.]+.*-cloud-`+s.arch+"$")
	if err != nil {
		return "", err
	}
	if pkg := newest(names, s.name, s.moves()); pkg != "" {
		return pkg, nil
	}
	return "", fmt.Errorf("%w in %s (looked for %s%s.*-cloud-%s)", errNoKernel, strings.Join(s.suites, ", "), imagePrefix, s.name, s.arch)
}

// newest returns the series' image package with the highest version in its name. If
// there is none and later is set, it returns one of a later series, or "".
func newest(names []string, series string, later bool) string {
	var best, other string
	for _, name := range names {
		release := strings.TrimPrefix(name, imagePrefix)
		switch {
		case strings.HasPrefix(release, series+"."):
			if best == "" || compareNatural(name, best) > 0 {
				best = name
			}
		case later && strings.Contains(release, ".") && compareNatural(release, series) > 0:
			if other == "" || compareNatural(name, other) > 0 {
				other = name
			}
		}
	}
	return cmp.Or(best, other)
}

// compareNatural compares strings, with runs of digits as numbers, so that 6.1.0-9
// comes before 6.1.0-56.
func compareNatural(a, b string) int {
	return slices.CompareFunc(fields(a), fields(b), func(x, y string) int {
		m, errX := strconv.ParseUint(x, 10, 64)
		n, errY := strconv.ParseUint(y, 10, 64)
		switch {
		case errX != nil || errY != nil:
			return strings.Compare(x, y)
		case m < n:
			return -1
		case m > n:
			return 1
		}
		return 0
	})
}

// fields splits s where digits begin or end.
func fields(s string) []string {
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	var out []string
	start := 0
	for i := 1; i <= len(s); i++ {
		if i == len(s) || digit(s[i]) != digit(s[i-1]) {
			out = append(out, s[start:i])
			start = i
		}
	}
	return out
}

// wantedFile matches the paths in a package of the kernel's image and of the modules that
// tests use. The first group is the module's name.
var wantedFile = regexp.MustCompile(`^\./(?:boot/vmlinuz-[^/]*|usr/lib/modules/[^/]*/vmlinuz|(?:usr/)?lib/modules/.*/(` +
	strings.Join(modules, "|") + `)\.ko(?:\.xz)?)$`)

// extractKernel writes the kernel's image and modules that are in the package deb
// to the folder dir, as vmlinuz and NAME.ko.
func extractKernel(ctx context.Context, deb, dir string) error {
	cmd := command(ctx, "", "dpkg-deb", "--fsys-tarfile", deb)
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		found := wantedFile.FindStringSubmatch(h.Name)
		if found == nil {
			continue
		}
		to := "vmlinuz"
		if found[1] != "" {
			to = found[1] + ".ko"
		}
		content := io.Reader(r)
		if path.Ext(h.Name) == ".xz" {
			if content, err = xz.NewReader(r); err != nil {
				return fmt.Errorf("unpack %s: %w", h.Name, err)
			}
		}
		if err := writeFile(filepath.Join(dir, to), content); err != nil {
			return err
		}
	}
}

// writeFile writes the content of r to the file path, which appears complete or not
// at all.
func writeFile(path string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// command returns a command that runs in dir and reports on our own output.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}
