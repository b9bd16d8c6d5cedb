package branches

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/child"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// optimizer optimizes a binary with the installed llvm-bolt.
type optimizer struct {
	llvm  llvm
	flags []string // supported by this llvm-bolt
	// output is the file to write. dir is a directory next to it for incomplete
	// files.
	output, dir string
}

// newOptimizer prepares to write output.
func newOptimizer(ctx context.Context, l llvm, output string) (*optimizer, error) {
	if isDirectory(output) {
		return nil, usage.Errorf("%s %s is a directory: give the name of the file to write", usage.Optimize, output)
	}
	help, err := exec.CommandContext(ctx, l.program("llvm-bolt"), "--help-hidden").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help-hidden: %w", l.program("llvm-bolt"), err)
	}
	z := &optimizer{llvm: l, flags: knownFlags(l.layoutFlags(true), help), output: output}
	z.dir, err = os.MkdirTemp(filepath.Dir(output), ".fulgur-bolt-")
	if err != nil {
		return nil, fmt.Errorf("write next to %s: %w", output, err)
	}
	return z, nil
}

// knownFlags returns the flags that help, the output of llvm-bolt --help-hidden, lists.
func knownFlags(flags []string, help []byte) []string {
	var known []string
	for _, flag := range flags {
		name, value, hasValue := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		section := regexp.MustCompile(`(?m)^ +--?` + regexp.QuoteMeta(name) + `(=<.*>)? .*(\n +=.*)*`).Find(help)
		if section == nil {
			continue
		}
		if hasValue && !regexp.MustCompile(`(?m)^ +=`+regexp.QuoteMeta(value)+` `).Match(section) {
			continue
		}
		known = append(known, flag)
	}
	return known
}

// path returns the path of an incomplete file.
func (z *optimizer) path(name string) string { return filepath.Join(z.dir, name) }

func (z *optimizer) close() error { return os.RemoveAll(z.dir) }

// check rejects binaries that llvm-bolt cannot optimize, or not well, before
// measuring.
func (z *optimizer) check(bs *binaries) error {
	b := bs.only
	name := plain.Terminal(b.Name)
	switch out, err := os.Stat(z.output); {
	case err == nil && bs.isChosen(out):
		return usage.Errorf("%s %s is the binary itself: give another file", usage.Optimize, z.output)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case b.Optimized:
		return fmt.Errorf("%s was already optimized by llvm-bolt, which cannot optimize it again: run and give the original file", name)
	case !b.Symbols:
		return fmt.Errorf("%s is stripped, but llvm-bolt needs its symbol table: run the unstripped file, linked with -Wl,--emit-relocs, or give it with %s if it has the same build ID", name, usage.Binary)
	case !b.Relocations:
		return fmt.Errorf("%s has no code relocations (.rela.text), which llvm-bolt needs to move functions: link it with -Wl,--emit-relocs (and do not strip it), and run that", name)
	}
	return nil
}

// optimize optimizes the binary with the profile at path, and adds the results to
// the report.
func (z *optimizer) optimize(ctx context.Context, bs *binaries, path string, report *report) error {
	r := report.of(bs.only)
	r.Next = [][]string{}
	if filepath.Dir(path) == filepath.Clean(z.dir) {
		r.Profile = "" // the profile is temporary
	}
	if r.Branches+r.Samples == 0 {
		return fmt.Errorf("nothing was sampled in %s: it cannot be optimized", plain.Terminal(r.Binary))
	}
	binary := bs.path()
	fdata, optimized := z.path("profile.fdata"), z.path("optimized")
	converted, err := z.call(ctx, z.llvm.convert(path, fdata, binary, report.basic))
	if err != nil {
		return err
	}
	messages, err := z.call(ctx, z.llvm.optimize(binary, optimized, fdata, z.flags))
	if err != nil {
		return err
	}
	if err := os.Rename(optimized, z.output); err != nil {
		return fmt.Errorf("write %s: %w", z.output, err)
	}
	r.Optimized, r.Findings = z.output, findings(slices.Concat(converted, messages))
	return nil
}

// call runs a BOLT program and returns its output.
func (z *optimizer) call(ctx context.Context, argv []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// Ctrl-C may end only the measurement.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := child.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	output := text.Bytes()
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted: %s has not finished, so %s was not written", argv[0], z.output)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", plain.Command(argv), err, complaint(output))
	}
	return output, nil
}

// complaint returns the error messages in BOLT's output, or else its last lines.
func complaint(output []byte) string {
	const limit = 4
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	var errs []string
	for _, line := range lines {
		if strings.Contains(line, "BOLT-ERROR") {
			errs = append(errs, line)
		}
	}
	if len(errs) == 0 {
		errs = lines[max(0, len(lines)-limit):]
	}
	return strings.Join(errs[:min(len(errs), limit)], "\n")
}

// Messages of BOLT for the user: how much of the profile it accepts and rejects and,
// in the table of -dyno-stats, what changed.
var (
	boltSays = regexp.MustCompile(`(?m)^(?:BOLT-INFO|PERF2BOLT): (.*(?:have non-empty execution profile|could not be optimized|traces mismatching .*: [1-9]|out of range traces .*: [1-9]).*)$`)
	dynoStat = regexp.MustCompile(`(?m)^\s*\d+ : (executed instructions|total branches|taken branches) \(([-+]\d+\.\d+%|=)\)$`)
)

// findings returns the messages in BOLT's output for the user.
func findings(output []byte) []string {
	var found []string
	for _, m := range boltSays.FindAllSubmatch(output, -1) {
		if line := string(m[1]); !slices.Contains(found, line) {
			found = append(found, line)
		}
	}
	var changes []string
	for _, m := range dynoStat.FindAllSubmatch(output, -1) {
		changes = append(changes, fmt.Sprintf("%s %s", m[1], m[2]))
	}
	switch {
	case len(changes) > 0:
		found = append(found, strings.Join(changes, ", "))
	case bytes.Contains(output, []byte("(no change)")):
		found = append(found, "nothing changed")
	}
	return found
}

// of returns the report of b.
func (r *report) of(b *bolt.Binary) *binaryReport {
	for i := range r.Binaries {
		if r.Binaries[i].Binary == b.Name {
			return &r.Binaries[i]
		}
	}
	return &binaryReport{Binary: b.Name}
}
