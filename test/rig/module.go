package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fulgur/test/rig/pmu"
)

// fetchHeaders returns a directory with the headers for building modules for kernel
// k. It downloads Debian's headers if needed, and installs nothing.
func fetchHeaders(ctx context.Context, a *apt, k kernel) (string, error) {
	pkgs, err := headerPackages(ctx, a, k)
	if err != nil {
		return "", err
	}
	return a.fetch(ctx, "headers-"+k.release, pkgs, func(debs []string, root string) error {
		if err := extractAll(ctx, debs, root); err != nil {
			return err
		}
		return wrapPrograms(ctx, root, filepath.Join(root, "usr", "lib", kbuildName.FindString(strings.Join(pkgs, " "))))
	})
}

// buildModule builds the PMU of test/rig/pmu for kernel k in dir, with the headers
// in root, and returns the module's path.
func buildModule(ctx context.Context, k kernel, root, dir string) (string, error) {
	// kbuild writes next to the source, so copy the source.
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
		// Rewriting an unchanged file would cause a rebuild.
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
		// The Makefile in headers sets this variable and includes this Makefile,
		// both by their installed paths.
		"KBUILD_OUTPUT="+headers, "-f", filepath.Join(common, "Makefile"),
		"M="+work, "CC=gcc-12",
		// The kernel's compiler may be newer. The module aligns functions
		// differently, and ignores attributes that name the counts of
		// arrays.
		"CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=", "KCFLAGS=-falign-functions=16 -Wno-attributes",
		// BTF of modules needs pahole, and nothing here uses it.
		"CONFIG_DEBUG_INFO_BTF_MODULES=",
		"modules").Run()
	return filepath.Join(work, pmu.Module+".ko"), err
}

// headerDirs returns the directories of k's own headers, and of the headers shared
// with other flavors, unpacked below root.
func headerDirs(root string, k kernel) (headers, common string, err error) {
	src := filepath.Join(root, "usr", "src")
	found, err := filepath.Glob(filepath.Join(src, "linux-headers-*-common"))
	if err != nil || len(found) != 1 {
		return "", "", fmt.Errorf("found %d folders of common headers in %s, want 1", len(found), src)
	}
	return filepath.Join(src, "linux-headers-"+k.release), found[0], nil
}

// needed matches the packages that building a module needs besides k's headers:
// common headers, and kbuild.
var needed = regexp.MustCompile(`^(linux-headers-.*-common|linux-kbuild-.*)$`)

// kbuildName matches the name of kbuild's package, and of its folder.
var kbuildName = regexp.MustCompile(`linux-kbuild-\S+`)

// libraries matches the packages of libraries that kbuild's programs need.
var libraries = regexp.MustCompile(`^(libc6|libelf1\S*|zlib1g|libzstd1)$`)

// headerPackages returns the names of the packages for building modules, including
// libraries, which may be newer than this machine's.
func headerPackages(ctx context.Context, a *apt, k kernel) ([]string, error) {
	pkgs := []string{"linux-headers-" + k.release}
	for i := 0; i < len(pkgs); i++ { // pkgs grows
		names, err := a.depends(ctx, pkgs[i])
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if (needed.MatchString(name) || libraries.MatchString(name)) && !slices.Contains(pkgs, name) {
				pkgs = append(pkgs, name)
			}
		}
	}
	return pkgs, nil
}

// wrapPrograms wraps the programs below dir that cannot run with this machine's
// libraries, so that they use those below root.
func wrapPrograms(ctx context.Context, root, dir string) error {
	loader := filepath.Join(root, "usr", "lib", "x86_64-linux-gnu", "ld-linux-x86-64.so.2")
	if _, err := os.Stat(loader); err != nil {
		return nil //nolint:nilerr // an older release, whose programs run here
	}
	return filepath.WalkDir(dir, func(program string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if f, err := elf.Open(program); err != nil {
			return nil //nolint:nilerr // a script, or text
		} else if err := f.Close(); err != nil {
			return err
		}
		// ldd fails for files that are not programs.
		out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "not found") {
			return ctx.Err()
		}
		up, err := filepath.Rel(filepath.Dir(program), filepath.Dir(loader))
		if err != nil {
			return err
		}
		script := fmt.Sprintf(`#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
lib=$here/%s
exec "$lib/%s" --library-path "$lib" "$here/%s.elf" "$@"
`, up, filepath.Base(loader), filepath.Base(program))
		if err := os.Rename(program, program+".elf"); err != nil {
			return err
		}
		return os.WriteFile(program, []byte(script), 0o755)
	})
}
