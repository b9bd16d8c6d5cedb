package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"fulgur/test/rig/pmu"
)

// testPackage is a Go package, as go list describes it.
type testPackage struct {
	rel string // path below the module's root
	dir string
}

// buildInitramfs builds everything that runs in the machines and returns the
// path of the archive that holds it:
//
//	/init           test/rig/init
//	/bin            busybox, opt.programs and opt.tools
//	/usr and others what is in opt.debs
//	/lib/modules    each kernel's modules, in a folder by release
//	/src/PKG        each package's test binary, PKG.test, and its testdata
func buildInitramfs(ctx context.Context, a *apt, kernels []kernel, opt options) (string, error) {
	bin := filepath.Join(opt.dir, "bin")
	// What an earlier run left must not be tested again.
	if err := os.RemoveAll(bin); err != nil {
		return "", err
	}
	packages, err := listPackages(ctx, opt.packages)
	if err != nil {
		return "", err
	}

	initPath := filepath.Join(bin, "init")
	if err := goBuild(ctx, opt.arch.name, "build", initPath, "./test/rig/init"); err != nil {
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
	add(addBusybox(ctx, a, c, opt.arch))
	for _, k := range kernels {
		if k.module != "" {
			add(c.file(path.Join("lib/modules", k.release, pmu.Module+".ko"), k.module))
		}
		add(c.file(path.Join("lib/modules", k.release, "loop.ko"), k.loop))
	}
	for _, p := range opt.programs {
		out := filepath.Join(bin, path.Base(p))
		add(goBuild(ctx, opt.arch.name, "build", out, p))
		add(c.file(path.Join("bin", path.Base(p)), out))
	}
	for _, name := range opt.debs {
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
		base := path.Base(p.rel) + ".test"
		out := filepath.Join(bin, filepath.FromSlash(p.rel), base)
		add(goBuild(ctx, opt.arch.name, "test", out, p.dir))
		add(c.file(path.Join("src", p.rel, base), out))
		add(c.tree(path.Join("src", p.rel, "testdata"), filepath.Join(p.dir, "testdata")))
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

// listPackages returns the packages that match the patterns and have tests.
func listPackages(ctx context.Context, patterns []string) ([]testPackage, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Module.Path}}\t{{.Dir}}{{end}}"
	cmd := command(ctx, "", "go", append([]string{"list", "-f", format}, patterns...)...)
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", strings.Join(patterns, " "), err)
	}
	var list []testPackage
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) == 3 {
			list = append(list, testPackage{rel: strings.TrimPrefix(f[0], f[1]+"/"), dir: f[2]})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no tests in %s", strings.Join(patterns, " "))
	}
	return list, nil
}

// goBuild builds pkg's program ("build") or tests ("test") into out, static,
// for the machines that the rig boots.
func goBuild(ctx context.Context, arch, verb, out, pkg string) error {
	args := []string{verb, "-o", out}
	if verb == "test" {
		args = append(args, "-c")
	}
	cmd := command(ctx, "", "go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s %s: %w", verb, pkg, err)
	}
	return nil
}

// addBusybox adds busybox, from which init makes all other commands: the host's, or
// Debian's for another architecture.
func addBusybox(ctx context.Context, a *apt, c *cpioWriter, machines arch) error {
	if machines.name != runtime.GOARCH {
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
		return fmt.Errorf("look at busybox: %w", err)
	case !static:
		return fmt.Errorf("%s, and %s is not", needs, host)
	}
	return c.file("bin/busybox", host)
}

// isStatic reports whether an ELF program needs no dynamic loader.
func isStatic(name string) (bool, error) {
	f, err := elf.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false, nil
		}
	}
	return true, nil
}
