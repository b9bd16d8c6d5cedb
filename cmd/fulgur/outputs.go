package main

import (
	"context"
	"fmt"
	"io"
	"reflect"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile/output"
)

// outputsOf returns the paths on the command line that a command writes to.
func outputsOf(c command) (paths []string) {
	for _, name := range []string{"Output", "Spool", "BoltDir"} {
		f := reflect.ValueOf(c).Elem().FieldByName(name)
		if !f.IsValid() {
			continue
		}
		if path := f.String(); !output.IsStdout(path) && !output.IsURL(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// awaitOutputs waits until the file systems of a command's outputs respond, or ctx is done.
// Nothing is lost then, but a wait in the command itself could not be interrupted.
func awaitOutputs(ctx context.Context, c command, stderr io.Writer) error {
	for _, path := range outputsOf(c) {
		err := safeopen.Await(ctx, path, func() {
			_, _ = fmt.Fprintf(stderr, "%s: its file system does not answer; waiting until it does, or until Ctrl-C\n", plain.Terminal(path))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
