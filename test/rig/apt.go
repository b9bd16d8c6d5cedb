package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// apt downloads packages of one architecture from some of Debian's suites, without
// installing them. It has its own sources, lists and cache, so the machine's stay
// unchanged. It trusts the same keys as the machine's apt.
type apt struct {
	dir    string // directory for unpacked packages
	config string // path of its configuration
	lists  string // folder of its package lists
}

// listsAge is the age at which package lists are fetched again.
const listsAge = 12 * time.Hour

// newAPT returns an apt for the suites, with its files in dir. It uses package lists
// of an earlier run if they are recent, or if new ones cannot be fetched.
func newAPT(ctx context.Context, dir string, m mirror, arch string, suites []string) (*apt, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	root := filepath.Join(dir, "apt", arch+"-"+strings.Join(suites, "-"))
	a := &apt{dir: dir, config: filepath.Join(root, "apt.conf"), lists: filepath.Join(root, "lists")}
	cache, sources := filepath.Join(root, "cache"), filepath.Join(root, "rig.sources")
	for _, folder := range []string{a.lists, filepath.Join(cache, "archives")} {
		if err := os.MkdirAll(filepath.Join(folder, "partial"), 0o755); err != nil {
			return nil, err
		}
	}
	if err := writeFile(sources, strings.NewReader(m.sources(suites))); err != nil {
		return nil, err
	}
	if err := writeFile(a.config, strings.NewReader(aptConfig(arch, sources, a.lists, cache))); err != nil {
		return nil, err
	}
	if err := a.refresh(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// aptConfig returns a configuration that apt reads after the machine's.
func aptConfig(arch, sources, lists, cache string) string {
	return fmt.Sprintf(`APT::Architecture %q;
#clear APT::Architectures;
APT::Architectures { %q; };
Dir::Etc::sourcelist %q;
Dir::Etc::sourceparts "-";
Dir::State::lists %q;
Dir::State::status "/dev/null";
Dir::Cache %q;
Dir::Cache::pkgcache "pkgcache.bin";
// Commands that look after the machine's own lists.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::Languages "none";
Acquire::AllowInsecureRepositories "false";
APT::Get::AllowUnauthenticated "false";
// apt's own user cannot write to our download directory.
APT::Sandbox::User "root";
`, arch, arch, sources, lists, cache)
}

// refresh fetches the package lists unless they are new.
func (a *apt) refresh(ctx context.Context) error {
	stamp := filepath.Join(a.lists, "fetched")
	last, err := os.Stat(stamp)
	if err == nil && time.Since(last.ModTime()) < listsAge {
		return nil
	}
	if err2 := a.run(ctx, "", "apt-get", "update", "-qq"); err2 != nil {
		if err == nil {
			fmt.Printf("cannot fetch package lists, using the ones of %s: %v\n", last.ModTime().Format(time.DateOnly), err2)
			return nil
		}
		return fmt.Errorf("fetch package lists: %w", err2)
	}
	return os.WriteFile(stamp, nil, 0o644)
}

// run runs one of apt's programs.
func (a *apt) run(ctx context.Context, dir, program string, args ...string) error {
	return command(ctx, dir, program, append([]string{"-c", a.config}, args...)...).Run()
}

// output returns what one of apt's programs prints.
func (a *apt) output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := command(ctx, "", program, append([]string{"-c", a.config}, args...)...)
	cmd.Stdout = nil
	out, err := cmd.Output()
	return string(out), err
}

// search returns the names of the packages that match the pattern.
func (a *apt) search(ctx context.Context, pattern string) ([]string, error) {
	lines, err := a.output(ctx, "apt-cache", "search", "--names-only", pattern)
	if err != nil {
		return nil, fmt.Errorf("search the package lists: %w", err)
	}
	var names []string
	for line := range strings.Lines(lines) {
		if name, _, ok := strings.Cut(line, " "); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// depends returns the names of the packages that must be installed for pkg.
func (a *apt) depends(ctx context.Context, pkg string) ([]string, error) {
	lines, err := a.output(ctx, "apt-cache", "depends", pkg)
	if err != nil {
		return nil, fmt.Errorf("list the dependencies of %s: %w", pkg, err)
	}
	return dependsOn(lines), nil
}

// dependsOn parses the output of apt-cache depends.
func dependsOn(lines string) []string {
	var pkgs []string
	for line := range strings.Lines(lines) {
		if kind, name, _ := strings.Cut(strings.TrimSpace(line), ": "); kind == "Depends" {
			pkgs = append(pkgs, name)
		}
	}
	return pkgs
}

// download fetches packages into the empty directory dir and returns the paths of
// their files, unordered. apt verifies them by the checksums in the package lists,
// and the lists by the archive's signature.
func (a *apt) download(ctx context.Context, dir string, pkgs ...string) ([]string, error) {
	names := strings.Join(pkgs, " ")
	fmt.Println("downloading", names)
	if err := a.run(ctx, dir, "apt-get", append([]string{"download", "-qq"}, pkgs...)...); err != nil {
		// The archive may be newer than the lists.
		_ = os.Remove(filepath.Join(a.lists, "fetched"))
		return nil, fmt.Errorf("download %s (try again for new package lists): %w", names, err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(debs) != len(pkgs) {
		err = fmt.Errorf("download %s: found %d files, want %d", names, len(debs), len(pkgs))
	}
	return debs, err
}

// unpack returns the absolute path of the directory name in a.dir, which contains
// the unpacked packages. It downloads them if the directory does not exist.
func (a *apt) unpack(ctx context.Context, name string, pkgs ...string) (string, error) {
	return a.fetch(ctx, name, pkgs, func(debs []string, root string) error { return extractAll(ctx, debs, root) })
}

// extractAll unpacks packages into the folder root.
func extractAll(ctx context.Context, debs []string, root string) error {
	for _, deb := range debs {
		if err := command(ctx, "", "dpkg-deb", "-x", deb, root).Run(); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}
	return nil
}

// fetch returns the path of the directory name in a.dir. If it does not exist, fetch
// downloads packages and calls extract to fill it; it appears complete or not at
// all.
func (a *apt) fetch(ctx context.Context, name string, pkgs []string, extract func(debs []string, root string) error) (string, error) {
	unlock, err := lock(a.dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	root := filepath.Join(a.dir, name)
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
	if err := os.Mkdir(unpacked, 0o755); err != nil {
		return "", err
	}
	if err := extract(debs, unpacked); err != nil {
		return "", err
	}
	return root, os.Rename(unpacked, root)
}

// lock waits until no other rig downloads into dir, which several rigs may share.
// unlock, or the end of the process, releases it.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// apts holds the apts of a run, one for each set of suites.
type apts struct {
	dir    string
	arch   string
	mirror mirror
	made   map[string]*apt
}

// newAPTs returns apts for packages of an architecture, with their files in dir.
func newAPTs(ctx context.Context, dir, arch string) (*apts, error) {
	m, err := machineMirror(ctx)
	return &apts{dir: dir, arch: arch, mirror: m, made: map[string]*apt{}}, err
}

// of returns the apt for the suites.
func (s *apts) of(ctx context.Context, suites []string) (*apt, error) {
	key := strings.Join(suites, " ")
	if a := s.made[key]; a != nil {
		return a, nil
	}
	a, err := newAPT(ctx, s.dir, s.mirror, s.arch, suites)
	if err == nil {
		s.made[key] = a
	}
	return a, err
}

// own returns the apt for the suites of this machine's release.
func (s *apts) own(ctx context.Context) (*apt, error) { return s.of(ctx, s.mirror.own()) }
