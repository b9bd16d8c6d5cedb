package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"io"
	"strings"
	"time"
)

// maintainer is who Debian's tools name as responsible for the package.
const maintainer = "The fulgur authors <fulgur@packages.invalid>"

// control is the package's description, deb-control(5).
const control = `Package: fulgur
Version: %s
Architecture: %s
Maintainer: ` + maintainer + `
Installed-Size: %d
Recommends: ca-certificates
Suggests: debuginfod
Section: devel
Priority: optional
Description: profiler for Linux that uses eBPF
 fulgur samples the stacks of a whole machine or of one process, kernel and
 user code, and measures what threads wait for, requests to disks and page
 faults. It writes flame graphs, pprof profiles, profiles for the Firefox
 Profiler, folded stacks and text, and profiles of branches for llvm-bolt.
 .
 It needs Linux 5.10 or newer (6.1 on arm64) and no changes to the programs that it looks at.
`

// debVersion returns the version of a package, deb-version(7), that sorts as
// the releases do, for what git describe says: "v1.2.3" is 1.2.3-1, five commits
// later is 1.2.3+5.g0123456-1. A commit before the first release sorts by its
// time.
func debVersion(described string, at time.Time) string {
	version, release := strings.CutPrefix(described, "v")
	if !release {
		version = "0~" + at.UTC().Format("20060102150405") + "." + described
	}
	version = strings.Replace(version, "-", "+", 1)
	return strings.ReplaceAll(version, "-", ".") + "-1"
}

// writeDeb writes a Debian package, deb(5), of the entries, which are paths below
// the root directory, for an architecture of Debian's.
func writeDeb(w io.Writer, version, arch string, entries []entry, at time.Time) error {
	var sums strings.Builder // deb-md5sums(5)
	size := 0                // in KiB, as the package manager adds it up
	for _, e := range entries {
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(e.data), e.name)
		size += (len(e.data) + 1023) / 1024
	}
	meta := []entry{
		{"control", 0o644, fmt.Appendf(nil, control, version, arch, size)},
		{"md5sums", 0o644, []byte(sums.String())},
	}
	var metaTar, dataTar bytes.Buffer
	if err := writeTarball(&metaTar, "./", meta, at); err != nil {
		return err
	}
	if err := writeTarball(&dataTar, "./", entries, at); err != nil {
		return err
	}
	return writeAr(w, at, []entry{
		{"debian-binary", 0o100644, []byte("2.0\n")},
		{"control.tar.gz", 0o100644, metaTar.Bytes()},
		{"data.tar.gz", 0o100644, dataTar.Bytes()},
	})
}

// writeAr writes an archive of ar, in the common format that deb(5) describes.
func writeAr(w io.Writer, at time.Time, members []entry) error {
	if _, err := io.WriteString(w, "!<arch>\n"); err != nil {
		return err
	}
	for _, m := range members {
		if _, err := fmt.Fprintf(w, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, at.Unix(), 0, 0, m.mode, len(m.data)); err != nil {
			return err
		}
		data := m.data
		if len(data)%2 == 1 {
			data = append(data[:len(data):len(data)], '\n') // members begin at even offsets
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}
