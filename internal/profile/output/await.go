package output

import (
	"context"
	"fmt"
	"io"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/plain"
)

// Await waits until the file system of an output, a file or a directory, responds, or ctx is
// done, and says so on stderr. A wait in [Create] could not be interrupted.
func Await(ctx context.Context, path string, stderr io.Writer) error {
	if IsStdout(path) || IsURL(path) {
		return nil
	}
	return safeopen.Await(ctx, path, func() {
		_, _ = fmt.Fprintf(stderr, "fulgur: %s: its file system does not answer; waiting until it does, or until Ctrl-C\n", plain.Terminal(path))
	})
}
