package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// testPackage is a Go package, as go list describes it.
type testPackage struct {
	rel   string // path relative to the module's root
	dir   string
	files []string // test files
	size  int64    // of the test files, in bytes
	marks marks
}

// binary returns the path of the package's test binary in the archive.
func (p testPackage) binary() string {
	return path.Join("src", p.rel, path.Base(p.rel)+".test")
}

// buildInitramfs builds everything that runs in the machines and returns the
// path of the archive that holds it:
//
//	/init           test/rig/init
//	/bin            busybox, opt.programs and opt.tools
//	/usr and others what is in opt.debs
//	/lib/modules    each kernel's modules, in a folder by release
//	/programs       what tests have compiled (testenv.Compile)
//	/src/PKG        each package's test binary, PKG.test, and its testdata
func buildInitramfs(ctx context.Context, apts *apts, kernels []kernel, packages []testPackage, opt options) (string, error) {
	bin := filepath.Join(opt.dir, "bin")
	// Do not test leftovers of an earlier run.
	if err := os.RemoveAll(bin); err != nil {
		return "", err
	}
	initPath := filepath.Join(bin, "init")
	if err := goBuild(ctx, opt.arch.name, initPath, "./test/rig/init", "build"); err != nil {
		return "", err
	}
	name := filepath.Join(opt.dir, "initramfs.cpio")
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	c := newCPIOWriter(f)
	add := func(err2 error) { err = errors.Join(err, err2) }
	add(c.file("init", initPath))
	add(addBusybox(ctx, apts, c, opt.arch))
	for _, k := range kernels {
		for _, name := range slices.Sorted(maps.Keys(k.modules)) {
			add(c.file(path.Join("lib/modules", k.release, name+".ko"), k.modules[name]))
		}
	}
	for _, p := range opt.programs {
		out := filepath.Join(bin, path.Base(p))
		// As users have them: without DWARF, which takes emulated CPUs long to read.
		add(goBuild(ctx, opt.arch.name, out, p, "build", "-ldflags=-s -w"))
		add(c.file(path.Join("bin", path.Base(p)), out))
	}
	for _, name := range opt.debs {
		a, err := apts.own(ctx)
		if err != nil {
			return "", err
		}
		root, err := a.unpack(ctx, "package-"+opt.arch.name+"-"+name, name)
		add(err)
		add(c.tree("", root))
	}
	if len(opt.tools) > 0 && opt.arch.name != runtime.GOARCH {
		return "", fmt.Errorf("-tool %s: programs of this machine do not run on %s", opt.tools[0], opt.arch.name)
	}
	for _, name := range opt.tools {
		add(addTool(ctx, c, name))
	}
	for _, p := range packages {
		out := filepath.Join(bin, filepath.FromSlash(p.binary()))
		test := []string{"test", "-c"}
		if opt.cover {
			test = append(test, "-cover", "-coverpkg=./...")
		}
		add(goBuild(ctx, opt.arch.name, out, p.dir, test...))
		add(c.file(p.binary(), out))
		add(c.tree(path.Join("src", p.rel, "testdata"), filepath.Join(p.dir, "testdata")))
		add(addPrograms(ctx, c, p, opt.arch, filepath.Join(opt.dir, "programs")))
	}
	for _, spec := range opt.files {
		src, dst, ok := strings.Cut(spec, "=")
		if !ok {
			return "", fmt.Errorf("-file %s: not of the form host=guest", spec)
		}
		add(c.file(strings.TrimPrefix(path.Clean(dst), "/"), src))
	}
	return name, errors.Join(err, c.close(), f.Close())
}

// listPackages returns the packages that match the patterns and have tests on an
// architecture.
func listPackages(ctx context.Context, arch string, patterns []string) ([]testPackage, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{"\t"}}{{.Module.Path}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}{{end}}`
	cmd := command(ctx, "", "go", append([]string{"list", "-f", format}, patterns...)...)
	cmd.Env = buildEnv(arch)
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", strings.Join(patterns, " "), err)
	}
	var list []testPackage
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 4 {
			continue
		}
		p := testPackage{rel: strings.TrimPrefix(f[0], f[1]+"/"), dir: f[2], files: strings.Fields(f[3])}
		for _, file := range p.files {
			info, err := os.Stat(filepath.Join(p.dir, file))
			if err != nil {
				return nil, err
			}
			p.size += info.Size()
		}
		if p.marks, err = readMarks(p.dir, p.files); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no tests in %s", strings.Join(patterns, " "))
	}
	return list, nil
}

// goBuild builds a static binary of a package for the rig's machines.
func goBuild(ctx context.Context, arch, out, pkg string, verb ...string) error {
	cmd := command(ctx, "", "go", append(verb, "-o", out, pkg)...)
	cmd.Env = buildEnv(arch)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s %s: %w", strings.Join(verb, " "), pkg, err)
	}
	return nil
}

// buildEnv returns the environment of the go tool when it builds for an architecture.
func buildEnv(arch string) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
}

// addBusybox adds busybox, which provides all other commands: the host's, or
// Debian's for another architecture.
func addBusybox(ctx context.Context, apts *apts, c *cpioWriter, machines arch) error {
	if machines.name != runtime.GOARCH {
		a, err := apts.own(ctx)
		if err != nil {
			return err
		}
		root, err := a.unpack(ctx, "busybox-"+machines.name, "busybox-static")
		return errors.Join(err, c.file("bin/busybox", filepath.Join(root, "bin", "busybox")))
	}
	const needs = "the rig needs a static busybox (Debian's busybox-static)"
	host, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%s: %w", needs, err)
	}
	switch static, err := isStatic(host); {
	case err != nil:
		return fmt.Errorf("examine busybox: %w", err)
	case !static:
		return fmt.Errorf("%s, and %s is not", needs, host)
	}
	return c.file("bin/busybox", host)
}

// isStatic reports whether an ELF program, or library, needs no libraries.
func isStatic(name string) (bool, error) {
	f, err := elf.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	return len(needed) == 0, err
}
