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

// addTool adds the program called name that is in our PATH, or the one with
// the path name, to the machine's /bin, and the shared objects that it loads to where they are here. Without
// it, tests that use it are skipped, or, with FULGUR_TEST_REQUIRE=1, there is
// an error.
func addTool(ctx context.Context, c *cpioWriter, name string) error {
	program, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv(testenv.RequireVar) == "1" {
			return err
		}
		fmt.Printf("no %s here: what needs it is skipped\n", name)
		return nil
	}
	return errors.Join(c.file(path.Join("bin", path.Base(name)), program), addLibraries(ctx, c, program))
}

// addLibraries adds the shared objects that a program loads, to where they are here.
func addLibraries(ctx context.Context, c *cpioWriter, program string) error {
	if static, err := isStatic(program); err != nil || static {
		return err
	}
	cmd := command(ctx, "", "ldd", program)
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list what %s loads: %w", program, err)
	}
	for _, object := range loadedBy(string(out)) {
		err = errors.Join(err, c.file(strings.TrimPrefix(object, "/"), object))
	}
	return err
}

// loadedBy returns the paths of the shared objects in what ldd prints, the
// interpreter's among them. The vDSO has none.
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
