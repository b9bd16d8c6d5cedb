package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// subject is a program that llvm-bolt optimizes.
type subject struct {
	name string // in the flag -programs and in names of files
	// source is its Debian source package, from which build makes the program out, given
	// the root of the source.
	source string
	build  func(ctx context.Context, source, out string) error
	// writeLoad writes a load of the size, which is about a second of work, the same each
	// time. The numbers in it come from random, which returns a number below n.
	writeLoad func(w *bufio.Writer, size int, random func(n int) int)
	size      int
	// start starts the program, idle.
	start func(ctx context.Context, binary string) (process, error)
}

// What llvm-bolt needs: the linker's relocations, and functions in one piece, since it does not
// optimize a function that gcc has split into a hot and a cold part.
const (
	unsplit     = "-fno-reorder-blocks-and-partition"
	relocations = "-Wl,--emit-relocs"
)

// process is a running subject.
type process interface {
	pid() int
	// do has the process do the load in a file. It may return while the process still works.
	do(load string) error
	// finish waits for the loads, and ends the process as a user would.
	finish() (run, error)
	// kill ends the process at once.
	kill()
}

// run is a run of a subject, from its start to its end.
type run struct {
	cpu    time.Duration     // user and system
	output [sha256.Size]byte // hash of the results of the loads
}

// subjects returns all subjects.
func subjects() []subject { return []subject{sqlite, lua, redis} }

// prepared is a subject with its binary and loads.
type prepared struct {
	subject
	binary             string // the program to optimize
	training, measured string // files
}

// prepare builds a subject in dir, unless an earlier run did, and writes its loads.
func (s subject) prepare(ctx context.Context, dir string) (prepared, error) {
	p := prepared{
		subject: s, binary: filepath.Join(dir, s.name),
		training: filepath.Join(dir, s.name+".training"), measured: filepath.Join(dir, s.name+".measured"),
	}
	if _, err := os.Stat(p.binary); errors.Is(err, fs.ErrNotExist) {
		source, err := fetchSource(ctx, dir, s.source)
		if err != nil {
			return p, err
		}
		progress("building %s", s.name)
		if err := s.build(ctx, source, p.binary+".new"); err != nil {
			return p, fmt.Errorf("build %s: %w", s.name, err)
		}
		if err := os.Rename(p.binary+".new", p.binary); err != nil {
			return p, err
		}
	} else if err != nil {
		return p, err
	}
	return p, errors.Join(s.write(p.training, 1), s.write(p.measured, 2))
}

// write writes a load to a file. Loads of different seeds have different numbers.
func (s subject) write(path string, seed uint64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f) // keeps its first error until Flush
	s.writeLoad(w, s.size, rand.New(rand.NewPCG(seed, 0)).IntN)
	return w.Flush()
}

// once runs binary, a variant of the subject, with a load.
func (s subject) once(ctx context.Context, binary, load string) (run, error) {
	p, err := s.start(ctx, binary)
	if err != nil {
		return run{}, err
	}
	if err := p.do(load); err != nil {
		p.kill()
		return run{}, fmt.Errorf("%s: %w", binary, err)
	}
	return p.finish()
}

// repeat starts the program, and has it do a load again and again until it is killed.
func (s subject) repeat(ctx context.Context, binary, load string) (process, error) {
	p, err := s.start(ctx, binary)
	if err != nil {
		return nil, err
	}
	go func() {
		for p.do(load) == nil { // until it is killed
		}
	}()
	return p, nil
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
		err := executeIn(ctx, dir, append([]string{
			"apt-get", "-qq", "-oAPT::Sandbox::User=root",
			"-oDir::Etc::SourceList=" + list, "-oDir::Etc::SourceParts=/dev/null", "-oDir::State::Lists=" + lists,
			"-oDir::Cache::pkgcache=", "-oDir::Cache::srcpkgcache=",
		}, verb...)...)
		if err != nil {
			return "", err
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, pkg+"-*", "debian"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("found %d sources of %s in %s, want 1", len(found), pkg, dir)
	}
	if err != nil {
		return "", err
	}
	return filepath.Dir(found[0]), nil
}

// execute runs a program to its end, and returns its standard output and standard error
// together.
func execute(ctx context.Context, argv ...string) (string, error) {
	return output(exec.CommandContext(ctx, argv[0], argv[1:]...))
}

// executeIn runs a program in a directory to its end.
func executeIn(ctx context.Context, dir string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	_, err := output(cmd)
	return err
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out), nil
}
