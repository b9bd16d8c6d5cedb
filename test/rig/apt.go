package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// apt downloads packages of the machines' architecture, and installs none.
type apt struct {
	dir     string   // downloads
	options []string // of apt's programs
}

// newAPT returns apt as it is configured here. The packages of another architecture
// have lists of their own, so that this machine need not know of it.
func newAPT(dir, arch string) (*apt, error) {
	a := &apt{dir: dir}
	if arch == runtime.GOARCH {
		return a, nil
	}
	root, err := filepath.Abs(filepath.Join(dir, "apt-"+arch))
	if err != nil {
		return nil, err
	}
	lists, cache := filepath.Join(root, "lists"), filepath.Join(root, "cache")
	for _, folder := range []string{lists, cache} {
		if err := os.MkdirAll(filepath.Join(folder, "partial"), 0o755); err != nil {
			return nil, err
		}
	}
	a.options = []string{
		"-oAPT::Architecture=" + arch, "-oAPT::Architectures=" + arch,
		"-oDir::State::Lists=" + lists, "-oDir::Cache=" + cache,
	}
	return a, nil
}

// run runs one of apt's programs.
func (a *apt) run(ctx context.Context, dir, program string, args ...string) error {
	return command(ctx, dir, program, append(args, a.options...)...).Run()
}

// output returns what one of apt's programs prints.
func (a *apt) output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := command(ctx, "", program, append(args, a.options...)...)
	cmd.Stdout = nil
	out, err := cmd.Output()
	return string(out), err
}

// search returns the packages whose names match the pattern, as apt-cache search
// prints them. It updates apt's lists if they have none.
func (a *apt) search(ctx context.Context, pattern string) (string, error) {
	for _, update := range []bool{false, true} {
		if update {
			if err := a.run(ctx, "", "apt-get", "update", "-qq"); err != nil {
				return "", fmt.Errorf("update the package lists: %w", err)
			}
		}
		lines, err := a.output(ctx, "apt-cache", "search", "--names-only", pattern)
		if err != nil {
			return "", fmt.Errorf("search the package lists: %w", err)
		}
		if lines != "" {
			return lines, nil
		}
	}
	return "", nil
}

// download fetches packages into the empty folder dir and returns the paths of
// their files, in no particular order.
func (a *apt) download(ctx context.Context, dir string, pkgs ...string) ([]string, error) {
	names := strings.Join(pkgs, " ")
	fmt.Println("downloading", names)
	// Without the option apt warns that its own user cannot write here.
	args := append([]string{"download", "-qq", "-oAPT::Sandbox::User=root"}, pkgs...)
	if err := a.run(ctx, dir, "apt-get", args...); err != nil {
		return nil, fmt.Errorf("download %s (try apt-get update): %w", names, err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(debs) != len(pkgs) {
		err = fmt.Errorf("download %s: found %d files, want %d", names, len(debs), len(pkgs))
	}
	return debs, err
}

// unpack returns the absolute path of a folder with what is in the packages, which
// is a.dir's folder called name, and downloads them unless it is there.
func (a *apt) unpack(ctx context.Context, name string, pkgs ...string) (string, error) {
	root, err := filepath.Abs(filepath.Join(a.dir, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	tmp, err := os.MkdirTemp(a.dir, "deb-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	debs, err := a.download(ctx, tmp, pkgs...)
	if err != nil {
		return "", err
	}
	unpacked := filepath.Join(tmp, "root")
	for _, deb := range debs {
		if err := command(ctx, "", "dpkg-deb", "-x", deb, unpacked).Run(); err != nil {
			return "", fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}
	return root, os.Rename(unpacked, root)
}

// installed reports whether there is an apt here.
func installed() bool {
	_, err := exec.LookPath("apt-cache")
	return err == nil
}
