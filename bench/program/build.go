package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds fulgur in the directory dir as releases are built, without cgo, and returns its path.
func Build(ctx context.Context, dir string) (path string, err error) {
	path = filepath.Join(dir, "fulgur")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "fulgur/cmd/fulgur")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fulgur: %w\n%s", err, out)
	}
	return path, nil
}
