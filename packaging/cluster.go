package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// semantic is a semantic version, without the letter before it.
var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// semanticVersion returns a version for charts and plugins, which need a semantic one. Without a tag, it is
// below all releases.
func semanticVersion(version string) string {
	if v := strings.TrimPrefix(version, "v"); semantic.MatchString(v) {
		return v
	}
	return "0.0.0-g" + version
}

// chart returns the files of the chart for helm, of a version of fulgur.
func chart(root, version string) (list []entry, err error) {
	dir := os.DirFS(filepath.Join(root, "packaging", "kubernetes", "chart"))
	err = fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dir, name)
		if name == "Chart.yaml" {
			data = bytes.ReplaceAll(data, []byte(": 0.0.0\n"), []byte(": "+semanticVersion(version)+"\n"))
			data = bytes.ReplaceAll(data, []byte("# make dist replaces the versions.\n"), nil)
		}
		list = append(list, entry{path.Join("fulgur-agent", name), 0o644, data})
		return err
	})
	return list, err
}

// writeChart returns the chart as helm package makes it.
func writeChart(root, version string, at time.Time) ([]byte, error) {
	list, err := chart(root, version)
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	if err := writeTarball(&file, "", list, at); err != nil {
		return nil, err
	}
	return file.Bytes(), nil
}

// plugin returns the manifest with which krew installs fulgur as a plugin of kubectl, from the tarballs
// below a URL. sums are the checksums of all files of the release.
func plugin(version, url, sums string, architectures []string) ([]byte, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: fulgur
spec:
  version: v%s
  shortDescription: Profile a pod with eBPF
  description: |
    Measures a pod from a pod of its own on the same node, which exists only meanwhile:
    CPU time, waits, disk requests, page faults, locks and events, by stack. It needs
    the right to create privileged pods, and fulgur's image in a registry (--image).
  platforms:
`, semanticVersion(version))
	for _, arch := range architectures {
		name := tarballName(version, arch)
		sum := ""
		for line := range strings.Lines(sums) {
			if s, of, _ := strings.Cut(strings.TrimSpace(line), "  "); of == name+".tar.gz" {
				sum = s
			}
		}
		if sum == "" {
			return nil, errors.New("no tarball for " + arch)
		}
		fmt.Fprintf(&text, `    - selector:
        matchLabels: {os: linux, arch: %s}
      uri: %s/%s.tar.gz
      sha256: %s
      files:
        - {from: %[3]s/fulgur, to: .}
        - {from: %[3]s/LICENSE, to: .}
      bin: fulgur
`, arch, url, name, sum)
	}
	return text.Bytes(), nil
}
