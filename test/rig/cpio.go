package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Modes of an archive's entries, the S_IF bits of stat(2).
const (
	modeDir     = 0o040000
	modeFile    = 0o100000
	modeSymlink = 0o120000
)

// cpioWriter writes an initramfs: a cpio archive in the "newc" format of the
// kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
type cpioWriter struct {
	w     *bufio.Writer
	inode int
	dirs  map[string]bool   // written folders
	files map[string]string // written files, with the path of the host's file
}

func newCPIOWriter(w io.Writer) *cpioWriter {
	return &cpioWriter{w: bufio.NewWriter(w), dirs: map[string]bool{".": true}, files: map[string]string{}}
}

// entry writes one entry, after its parent folders. A name has no leading slash.
func (c *cpioWriter) entry(name string, mode uint32, size int64, body io.Reader) error {
	if err := c.mkdir(path.Dir(name)); err != nil {
		return err
	}
	c.inode++
	const links, id, mtime, device = 1, 0, 0, 0
	// Magic, then 13 fields of 8 hexadecimal digits: inode, mode, uid, gid,
	// links, mtime, size, device and special device as major and minor,
	// length of the name with its final NUL, and a checksum that is unused.
	fmt.Fprintf(c.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.inode, mode, id, id, links, mtime, size,
		device, device, device, device, len(name)+1, 0, name)
	const header = 110
	c.pad(int64(header + len(name) + 1))
	n, err := io.Copy(c.w, body)
	if err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	if n != size {
		return fmt.Errorf("archive %s: has %d bytes, expected %d", name, n, size)
	}
	c.pad(size)
	return nil
}

// pad writes zeros after n bytes, up to a multiple of 4.
func (c *cpioWriter) pad(n int64) {
	c.w.Write(make([]byte, -n&3))
}

// mkdir adds the folder name and its parents, once.
func (c *cpioWriter) mkdir(name string) error {
	if c.dirs[name] {
		return nil
	}
	c.dirs[name] = true
	return c.entry(name, modeDir|0o755, 0, strings.NewReader(""))
}

// symlink adds a symbolic link.
func (c *cpioWriter) symlink(name, target string) error {
	return c.entry(name, modeSymlink|0o777, int64(len(target)), strings.NewReader(target))
}

// file adds the host's file src, with its permissions, once.
func (c *cpioWriter) file(name, src string) error {
	if c.files[name] == src {
		return nil
	}
	c.files[name] = src
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return c.entry(name, modeFile|uint32(info.Mode().Perm()), info.Size(), f)
}

// tree adds the host's folder src with its contents. A missing folder is not an error.
func (c *cpioWriter) tree(name, src string) error {
	if _, err := os.Stat(src); os.IsNotExist(err) {
		return nil
	}
	return filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		dst := path.Join(name, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			return c.mkdir(dst)
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return c.symlink(dst, target)
		case d.Type().IsRegular():
			return c.file(dst, p)
		}
		return fmt.Errorf("archive %s: neither a file, a folder nor a link", p)
	})
}

// close ends the archive.
func (c *cpioWriter) close() error {
	if err := c.entry("TRAILER!!!", 0, 0, strings.NewReader("")); err != nil {
		return err
	}
	return c.w.Flush()
}
