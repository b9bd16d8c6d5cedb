package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ulikunitz/xz"
)

// errNoKernel is returned for a series that apt has no package of.
var errNoKernel = errors.New("apt knows no such kernel package")

// kernel is a kernel that can be booted.
type kernel struct {
	release string // as uname -r prints it
	image   string // path of its image
	loop    string // path of its module for loop devices, which stand in for disks
	module  string // path of test/rig/pmu's module, once it was built, if it is for it
}

// fetchKernel returns the newest cloud kernel of a series (as in 6.1) that apt
// offers, downloading it unless it is there. The cloud flavour boots
// fastest and needs no module to run the tests.
func fetchKernel(ctx context.Context, a *apt, series, arch string) (kernel, error) {
	pkg, err := newestPackage(ctx, a, series, arch)
	if err != nil {
		return kernel{}, err
	}
	k := kernel{release: strings.TrimPrefix(pkg, "linux-image-")}
	k.image, k.loop = filepath.Join(a.dir, "vmlinuz-"+k.release), filepath.Join(a.dir, "loop-"+k.release+".ko")
	missing := false
	for _, file := range []string{k.image, k.loop} {
		_, err := os.Stat(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return k, err
		}
		missing = missing || err != nil
	}
	if !missing {
		return k, nil
	}
	tmp, err := os.MkdirTemp(a.dir, "deb-")
	if err != nil {
		return k, err
	}
	defer os.RemoveAll(tmp)
	debs, err := a.download(ctx, tmp, pkg)
	if err != nil {
		return k, err
	}
	return k, extract(ctx, debs[0], k)
}

// newestPackage returns the name of the newest image package of a series.
func newestPackage(ctx context.Context, a *apt, series, arch string) (string, error) {
	if !installed() {
		return "", fmt.Errorf("%w: no apt here", errNoKernel)
	}
	// The anchors leave out the -unsigned and -dbg variants.
	lines, err := a.search(ctx, "^linux-image-"+strings.ReplaceAll(series, ".", `\.`)+`\..*-cloud-`+arch+"$")
	if err != nil {
		return "", err
	}
	if pkg := newest(lines); pkg != "" {
		return pkg, nil
	}
	return "", fmt.Errorf("%w (the rig needs Debian's linux-image-%s.*-cloud-%s)", errNoKernel, series, arch)
}

// newest returns the package with the highest version in its name, of lines
// as apt-cache search prints them, or "".
func newest(lines string) string {
	var best string
	for line := range strings.Lines(lines) {
		if pkg, _, ok := strings.Cut(line, " "); ok && (best == "" || compareNatural(pkg, best) > 0) {
			best = pkg
		}
	}
	return best
}

// compareNatural compares strings with the runs of digits in them taken as
// numbers, so that 6.1.0-9 comes before 6.1.0-56.
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

// extract writes the kernel image and the module that are in the package deb to
// k's files.
func extract(ctx context.Context, deb string, k kernel) error {
	cmd := command(ctx, "", "dpkg-deb", "--fsys-tarfile", deb)
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("unpack %s: %w", deb, err)
	}
	loop := "./lib/modules/" + k.release + "/kernel/drivers/block/loop.ko"
	want := map[string]string{"./boot/vmlinuz-" + k.release: k.image, loop: k.loop, loop + ".xz": k.loop}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", deb, err)
		}
		to, ok := want[h.Name]
		if !ok {
			continue
		}
		content := io.Reader(r)
		if path.Ext(h.Name) == ".xz" {
			if content, err = xz.NewReader(r); err != nil {
				return fmt.Errorf("unpack %s of %s: %w", h.Name, deb, err)
			}
		}
		if err := writeFile(to, content); err != nil {
			return err
		}
	}
	for _, file := range []string{k.image, k.loop} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%s does not hold %s: %w", deb, filepath.Base(file), err)
		}
	}
	return nil
}

// writeFile writes what r holds to the file path, which appears whole or not
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
