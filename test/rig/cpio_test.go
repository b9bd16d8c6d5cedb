package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

// TestCPIO unpacks an archive with busybox, which reads the format, too.
func TestCPIO(t *testing.T) {
	busybox := testenv.Tool(t, "busybox")
	src := t.TempDir()
	want := map[string]string{
		"empty":        "",
		"five":         "12345",
		"folder/eight": "12345678",
	}
	for name, body := range want {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(body), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("five", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	want["link"] = want["five"]

	var archive bytes.Buffer
	c := newCPIOWriter(&archive)
	if err := c.tree("deep/down", src); err != nil {
		t.Fatal(err)
	}
	if err := c.tree("absent", filepath.Join(src, "absent")); err != nil {
		t.Errorf("tree of a missing folder: %v", err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}

	dst := t.TempDir()
	cmd := exec.Command(busybox, "cpio", "-i", "-d")
	cmd.Dir, cmd.Stdin = dst, &archive
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v\n%s", err, out)
	}
	root := filepath.Join(dst, "deep", "down")
	got := map[string]string{}
	for name := range want {
		body, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		}
		got[name] = string(body)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(root, "five")); err != nil {
		t.Error(err)
	} else if info.Mode() != 0o640 {
		t.Errorf("mode %v, want 0640", info.Mode())
	}
	if target, err := os.Readlink(filepath.Join(root, "link")); target != "five" {
		t.Errorf("link = %q, %v, want five", target, err)
	}
}
