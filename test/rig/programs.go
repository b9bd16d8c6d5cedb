package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"

	"fulgur/internal/testenv"
)

// addPrograms compiles the programs of a package's tests (testenv.ProgramsFile) and
// adds them to the archive, with the libraries that they need. Compiled programs
// stay in dir.
func addPrograms(ctx context.Context, c *cpioWriter, p testPackage, machines arch, dir string) error {
	text, err := os.ReadFile(filepath.Join(p.dir, filepath.FromSlash(testenv.ProgramsFile)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := testenv.ParseCompileRequests(string(text))
	if err != nil {
		return fmt.Errorf("%s of %s: %w", testenv.ProgramsFile, p.rel, err)
	}
	for _, r := range list {
		compiler := r.Compiler
		if machines.name != runtime.GOARCH {
			compiler = fmt.Sprintf(machines.compilers, compiler)
		}
		if _, err := exec.LookPath(compiler); err != nil {
			if os.Getenv(testenv.RequireVar) == "1" {
				return fmt.Errorf("compile %s for %s: %w", r.Name, p.rel, err)
			}
			fmt.Printf("no %s here: skipping tests that need %s\n", compiler, r.Name)
			continue
		}
		err := addProgram(ctx, c, p, r, compiler, machines, dir)
		if err != nil && machines.name != runtime.GOARCH && ctx.Err() == nil {
			// Some have flags of this machine's architecture.
			fmt.Printf("skipping tests that need %q: %v\n", r, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("compile %q for %s: %w", r, p.rel, err)
		}
	}
	return nil
}

// addProgram compiles one program, unless dir contains it, and adds it.
func addProgram(ctx context.Context, c *cpioWriter, p testPackage, r testenv.CompileRequest, compiler string, machines arch, dir string) error {
	key, err := r.Key(p.dir)
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(filepath.Join(dir, machines.name)); err != nil {
		return err
	}
	out := filepath.Join(dir, key)
	if _, err := os.Stat(out); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		tmp := out + ".new"
		if err := command(ctx, p.dir, compiler, append([]string{"-o", tmp}, r.Args...)...).Run(); err != nil {
			return err
		}
		if err := os.Rename(tmp, out); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := c.file(path.Join(testenv.ProgramsDir[1:], key), out); err != nil {
		return err
	}
	// The key includes the sources in that directory.
	for _, source := range r.Sources() {
		if err := c.file(path.Join("src", p.rel, source), filepath.Join(p.dir, source)); err != nil {
			return err
		}
	}
	if machines.name != runtime.GOARCH {
		return nil // -package provides the libraries
	}
	return addLibraries(ctx, c, out)
}
