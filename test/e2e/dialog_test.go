package e2e

import (
	"bufio"
	"io"
	"os/exec"
	"testing"
)

// dialog exchanges lines with a program through its standard input and output.
type dialog struct {
	io.WriteCloser // the program's standard input
	lines          *bufio.Scanner
}

// newDialog returns a dialog with a program that the caller starts afterwards.
func newDialog(t *testing.T, cmd *exec.Cmd) *dialog {
	t.Helper()
	cmd.Stdout = nil
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return &dialog{in, bufio.NewScanner(out)}
}

// line returns the next line of the program.
func (d *dialog) line(t *testing.T) string {
	t.Helper()
	if !d.lines.Scan() {
		t.Fatalf("got no line from the program, error %v", d.lines.Err())
	}
	return d.lines.Text()
}

// proceed writes the byte that the program waits for.
func (d *dialog) proceed(t *testing.T) {
	t.Helper()
	if _, err := d.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
}
