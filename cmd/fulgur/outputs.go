package main

import (
	"context"
	"io"
	"reflect"

	"fulgur/internal/profile/output"
)

// awaitOutputs waits until the file systems of the files that a command writes respond, or ctx
// is done.
func awaitOutputs(ctx context.Context, c command, stderr io.Writer) error {
	for _, name := range []string{"Output", "Optimize"} {
		f := reflect.ValueOf(c).Elem().FieldByName(name)
		if !f.IsValid() {
			continue
		}
		if err := output.Await(ctx, f.String(), stderr); err != nil {
			return err
		}
	}
	return nil
}
