package process

import (
	"os"
	"testing"

	"fulgur/internal/testenv"
)

func TestOpenPerfMap(t *testing.T) {
	testenv.Root(t) // to change the owner
	path := perfMapPath(os.Getpid())
	t.Cleanup(func() { _ = os.Remove(path) })
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := openPerfMap(nil, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if f, err := openPerfMap(nil, os.Getpid()); err == nil {
		f.Close()
		t.Error("got no error for a map that another user owns")
	}
}
