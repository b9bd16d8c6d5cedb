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

// formats are the package formats, by nfpm's names, which are also the file extensions.
var formats = []string{"deb", "rpm"}

// packageVersion returns the upstream version of a package for what git describe says: 1.2.3 for
// "v1.2.3", and 1.2.3+5.g0123456 five commits later. Versions sort as the releases do, by the rules
// of deb-version(7) and rpm-version(7). Commits before the first release sort by their time.
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

// writePackage writes a package in a format, for a GOARCH. The names of entries are relative to the root
// directory. It returns the conventional name of the package file.
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
	info.RPM.BuildHost = "localhost" // in place of the name of the building machine
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
// action in a deb package, and the number of versions that remain in an rpm package.
const (
	afterInstall = `#!/bin/sh
# After an upgrade, restart the agent if it runs.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart fulgur-agent.service
`
	beforeRemoval = `#!/bin/sh
# Stop the agent before its program is removed.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl --no-reload disable --now fulgur-agent.service
`
	afterRemoval = `#!/bin/sh
# Make systemd forget the unit, even if the agent has failed.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl reset-failed fulgur-agent.service 2>/dev/null || true # an error if nothing failed
`
)
