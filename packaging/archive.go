package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// entry is a file of an archive, or a directory if its name ends in a slash.
type entry struct {
	name string // its path below the archive's root, without a leading slash
	mode int64  // its permissions
	data []byte
}

// writeTarball writes the entries as a gzipped tar, see [writeTar].
func writeTarball(w io.Writer, prefix string, entries []entry, at time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(compressed, prefix, entries, at); err != nil {
		return err
	}
	return compressed.Close()
}

// writeTar writes the entries, in this order, as a tar archive whose paths begin with
// prefix. Directories come before what is in them. The bytes depend on the arguments
// alone: root owns everything, and everything is of the same time.
func writeTar(w io.Writer, prefix string, entries []entry, at time.Time) error {
	archive := tar.NewWriter(w)
	header := func(name string, kind byte, mode int64, size int) error {
		return archive.WriteHeader(&tar.Header{
			Format: tar.FormatGNU, Typeflag: kind, Name: prefix + name, Mode: mode, Size: int64(size),
			Uname: "root", Gname: "root", ModTime: at,
		})
	}
	known := map[string]bool{".": true}
	var directory func(name string) error
	directory = func(name string) error {
		if known[name] {
			return nil
		}
		known[name] = true
		if err := directory(path.Dir(name)); err != nil {
			return err
		}
		return header(name+"/", tar.TypeDir, 0o755, 0)
	}
	if prefix != "" {
		if err := header("", tar.TypeDir, 0o755, 0); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.name, "/"); ok {
			known[name] = true
			if err := errors.Join(directory(path.Dir(name)), header(e.name, tar.TypeDir, e.mode, 0)); err != nil {
				return err
			}
			continue
		}
		if err := directory(path.Dir(e.name)); err != nil {
			return err
		}
		if err := header(e.name, tar.TypeReg, e.mode, len(e.data)); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := archive.Write(e.data); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return archive.Close()
}
