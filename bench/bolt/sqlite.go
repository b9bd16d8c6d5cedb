package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// buildSQLite builds the sqlite3 shell from Debian's source package. It downloads the
// package into dir unless an earlier run did.
func buildSQLite(ctx context.Context, dir, out string) error {
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	source, err := fetchSource(ctx, dir, "sqlite3")
	if err != nil {
		return err
	}
	// sqlite is compiled as one file, as its authors recommend.
	progress("building sqlite")
	steps := [][]string{
		{"./configure", "--disable-tcl", "--disable-readline"},
		{"make", "sqlite3.c", "shell.c"},
		{"gcc", "-O2", "-fPIE", "-pie", "-Wl,--emit-relocs", "-DSQLITE_THREADSAFE=0",
			"-o", out + ".new", "shell.c", "sqlite3.c", "-lm", "-ldl"},
	}
	for _, argv := range steps {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = source
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, text)
		}
	}
	return os.Rename(out+".new", out)
}

// fetchSource downloads and unpacks a Debian source package in dir and returns its
// directory. It uses the machine's Debian mirrors with package lists of its own, and
// leaves the machine's lists unchanged.
func fetchSource(ctx context.Context, dir, pkg string) (string, error) {
	progress("downloading the source of %s", pkg)
	sources, err := execute(ctx, "apt-get", "indextargets",
		"--format", "deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages", "Origin: Debian")
	if err != nil {
		return "", err
	}
	list, lists := filepath.Join(dir, "sources.list"), filepath.Join(dir, "lists")
	err = errors.Join(
		os.WriteFile(list, []byte(sources), 0o644),
		os.MkdirAll(filepath.Join(lists, "partial"), 0o755))
	if err != nil {
		return "", err
	}
	for _, verb := range [][]string{{"update"}, {"source", pkg}} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{
			"-qq", "-oAPT::Sandbox::User=root",
			"-oDir::Etc::SourceList=" + list, "-oDir::Etc::SourceParts=/dev/null", "-oDir::State::Lists=" + lists,
			"-oDir::Cache::pkgcache=", "-oDir::Cache::srcpkgcache=",
		}, verb...)...)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get %s: %w\n%s", strings.Join(verb, " "), err, text)
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, pkg+"-*", "configure"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("found %d sources of %s in %s, want 1", len(found), pkg, dir)
	}
	if err != nil {
		return "", err
	}
	return filepath.Dir(found[0]), nil
}
