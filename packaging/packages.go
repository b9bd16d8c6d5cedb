package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // a format of [writePackage]
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // likewise
)

// maintainer is who the package managers name as responsible for the packages.
const maintainer = "The fulgur authors <fulgur@packages.invalid>"

// description is the packages' description; its first line is the summary.
const description = `profiler for Linux that uses eBPF
fulgur samples the stacks of a whole machine or of one process, kernel and
user code, and measures what threads wait for, requests to disks and page
faults. It writes flame graphs, pprof profiles, profiles for the Firefox
Profiler, folded stacks and text, and profiles of branches for llvm-bolt.

It needs Linux 5.10 or newer (6.1 on arm64) and no changes to the programs that it looks at.
`

// formats are the package formats, by the names of nfpm and of file extensions.
var formats = []string{"deb", "rpm"}

// packageVersion returns the upstream version of a package that sorts as the releases do, in
// deb-version(7) and rpm-version(7), for what git describe says: "v1.2.3" is 1.2.3, five commits
// later is 1.2.3+5.g0123456. A commit before the first release sorts by its time.
func packageVersion(described string, at time.Time) string {
	version, release := strings.CutPrefix(described, "v")
	if !release {
		version = "0~" + at.UTC().Format("20060102150405") + "." + described
	}
	version = strings.Replace(version, "-", "+", 1)
	return strings.ReplaceAll(version, "-", ".")
}

// revision is the packages' revision of a version.
const revision = "1"

// writePackage writes a package of the entries, which are paths below the root directory, in a
// format, for an architecture of Go's. It returns the name that the format wants for the file.
func writePackage(w io.Writer, format, version, arch string, entries []entry, at time.Time) (name string, err error) {
	dir, err := os.MkdirTemp("", "fulgur-packaging-") // nfpm reads files
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	stage := func(name string, data []byte) (string, error) {
		path := filepath.Join(dir, strings.ReplaceAll(name, "/", "\\"))
		return path, os.WriteFile(path, data, 0o600)
	}
	info := &nfpm.Info{
		Name: "fulgur", Arch: arch, Platform: "linux",
		Version: version, VersionSchema: "none", Release: revision,
		Section: "devel", Priority: "optional", Maintainer: maintainer, Description: description,
		License: "Apache-2.0", DisableGlobbing: true, MTime: at,
	}
	info.Recommends = []string{"ca-certificates"}
	info.RPM.BuildHost = "localhost" // not that of the build
	for _, e := range entries {
		source, err := stage(e.name, e.data)
		if err != nil {
			return "", err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: source, Destination: "/" + e.name,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: os.FileMode(e.mode), MTime: at},
		})
	}
	for _, script := range []struct {
		name, text string
		path       *string
	}{
		{"postinst", afterInstall, &info.Scripts.PostInstall},
		{"prerm", beforeRemoval, &info.Scripts.PreRemove},
		{"postrm", afterRemoval, &info.Scripts.PostRemove},
	} {
		if *script.path, err = stage(script.name, []byte(script.text)); err != nil {
			return "", err
		}
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	name = packager.ConventionalFileName(info)
	if err := packager.Package(nfpm.WithDefaults(info), w); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return name, nil
}

// afterInstall, beforeRemoval and afterRemoval are scripts of the packages. Their first argument is the
// action, in deb, or the number of versions that remain, in rpm.
const (
	afterInstall = `#!/bin/sh
# After an upgrade, an agent that runs continues with the new program.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart fulgur-agent.service
`
	beforeRemoval = `#!/bin/sh
# An agent does not outlive its program.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl --no-reload disable --now fulgur-agent.service
`
	afterRemoval = `#!/bin/sh
# systemd forgets the unit, even if the agent had failed.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl reset-failed fulgur-agent.service 2>/dev/null || true # an error if nothing failed
`
)
