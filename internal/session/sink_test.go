package session

import (
	"io"
	"testing"
)

// aborted is an output that counts discards.
type aborted struct {
	uncommitted
	count int
}

func (a *aborted) Abort() error {
	a.count++
	return nil
}

// A file is discarded unless it was committed, even if opening another sink failed first.
func TestOutputFileClose(t *testing.T) {
	f := new(outputFile)
	if err := f.Close(); err != nil {
		t.Errorf("close before open: %v", err)
	}
	out := &aborted{uncommitted: uncommitted{io.Discard}}
	f.Output = out
	if err := f.Close(); err != nil || out.count != 1 {
		t.Errorf("got %d discards, %v; want 1", out.count, err)
	}
}
