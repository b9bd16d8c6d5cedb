package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"fulgur/test/rig/pmu"
)

// buildModule builds the PMU of test/rig/pmu for kernel k in dir and returns
// the module's path. Debian's headers are downloaded into dir unless they are
// there, and installed nowhere.
func buildModule(ctx context.Context, a *apt, k kernel, dir string) (string, error) {
	pkgs, err := headerPackages(ctx, a, k)
	if err != nil {
		return "", err
	}
	root, err := a.unpack(ctx, "headers-"+k.release, pkgs...)
	if err != nil {
		return "", err
	}
	// kbuild writes next to the source, so that is copied.
	work, err := filepath.Abs(filepath.Join(dir, "module-"+k.release))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return "", err
	}
	const source = pmu.Module + ".c"
	text, err := os.ReadFile(filepath.Join("test", "rig", "pmu", "module", source))
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{source: text, "Makefile": []byte("obj-m := " + pmu.Module + ".o\n")} {
		// A file that is written anew is compiled anew.
		if old, err := os.ReadFile(filepath.Join(work, name)); err == nil && bytes.Equal(old, content) {
			continue
		}
		if err := os.WriteFile(filepath.Join(work, name), content, 0o644); err != nil {
			return "", err
		}
	}
	headers, common, err := headerDirs(root, k)
	if err != nil {
		return "", err
	}
	err = command(ctx, "", "make", "-s", "-C", headers,
		// The Makefile in headers includes this one by its installed path.
		"-f", filepath.Join(common, "Makefile"),
		"M="+work, "CC=gcc-12",
		// BTF of modules takes pahole, and nobody here reads it.
		"CONFIG_DEBUG_INFO_BTF_MODULES=",
		"modules").Run()
	return filepath.Join(work, pmu.Module+".ko"), err
}

// headerDirs returns the folders of the headers that are k's own and of those
// that it shares with the other flavours, unpacked below root.
func headerDirs(root string, k kernel) (headers, common string, err error) {
	src := filepath.Join(root, "usr", "src")
	found, err := filepath.Glob(filepath.Join(src, "linux-headers-*-common"))
	if err != nil || len(found) != 1 {
		return "", "", fmt.Errorf("found %d folders of common headers in %s, want 1", len(found), src)
	}
	return filepath.Join(src, "linux-headers-"+k.release), found[0], nil
}

// needed matches the packages, beside k's headers, that building a module
// takes: headers common to all flavours, and kbuild.
var needed = regexp.MustCompile(`^(linux-headers-.*-common|linux-kbuild-.*)$`)

// headerPackages returns the names of the packages to build modules with.
func headerPackages(ctx context.Context, a *apt, k kernel) ([]string, error) {
	pkg := "linux-headers-" + k.release
	out, err := a.output(ctx, "apt-cache", "depends", pkg)
	if err != nil {
		return nil, fmt.Errorf("ask what %s depends on: %w", pkg, err)
	}
	return append([]string{pkg}, neededBy(out)...), nil
}

// neededBy picks the needed packages from what apt-cache depends prints.
func neededBy(depends string) []string {
	var pkgs []string
	for line := range strings.Lines(depends) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if kind == "Depends" && needed.MatchString(name) {
			pkgs = append(pkgs, name)
		}
	}
	return pkgs
}
