package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"

	"fulgur/internal/testenv"
)

// addTool adds the program with the given name in PATH, or with the given path, to the
// machine's /bin, and the shared objects that it loads at their paths. If there is no
// such program, it is an error with FULGUR_TEST_REQUIRE=1; otherwise tests that use it
// are skipped.
func addTool(ctx context.Context, c *cpioWriter, name string) error {
	program, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv(testenv.RequireVar) == "1" {
			return err
		}
		fmt.Printf("no %s here: skipping tests that need it\n", name)
		return nil
	}
	return errors.Join(c.file(path.Join("bin", path.Base(name)), program), addLibraries(ctx, c, program))
}

// addLibraries adds the shared objects that a program loads, at the paths that they have
// here.
func addLibraries(ctx context.Context, c *cpioWriter, program string) error {
	if static, err := isStatic(program); err != nil || static {
		return err
	}
	cmd := command(ctx, "", "ldd", program)
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list the libraries that %s loads: %w", program, err)
	}
	for _, object := range loadedBy(string(out)) {
		err = errors.Join(err, c.file(strings.TrimPrefix(object, "/"), object))
	}
	return err
}

// loadedBy returns the paths of the shared objects in the output of ldd, including the
// interpreter. The vDSO has no path.
func loadedBy(ldd string) []string {
	var objects []string
	for line := range strings.Lines(ldd) {
		for _, field := range strings.Fields(line) {
			if path.IsAbs(field) {
				objects = append(objects, field)
			}
		}
	}
	return objects
}
