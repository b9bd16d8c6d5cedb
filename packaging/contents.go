package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// contents holds the files of a release, except the programs.
type contents struct {
	manuals     []entry // pages of section 1
	completions map[string]entry
	documents   []entry // README.md and what it links to, and examples
	unit        entry   // for systemd
	changelog   entry
	licenses    []entry
}

// shells are those that completions are written for, with the names that they
// look for.
var shells = map[string]string{"bash": "fulgur.bash", "zsh": "_fulgur", "fish": "fulgur.fish"}

// readContents collects the contents from the source tree at root.
func readContents(root string) (*contents, error) {
	c := contents{completions: map[string]entry{}}
	for shell, name := range shells {
		script, err := goTool(root, "run", "./cmd/fulgur", "completion", shell)
		if err != nil {
			return nil, err
		}
		c.completions[shell] = entry{name, 0o644, script}
	}
	licenses, err := thirdParties(root)
	if err != nil {
		return nil, err
	}
	c.licenses = []entry{{"LICENSE.third-party", 0o644, licenses}}
	read := func(into *[]entry, name, as string) error {
		data, err := os.ReadFile(filepath.Join(root, name))
		*into = append(*into, entry{as, 0o644, data})
		return err
	}
	var changelog, unit []entry
	for _, file := range []struct {
		into     *[]entry
		name, as string
	}{
		{&c.licenses, "LICENSE", "LICENSE"},
		{&c.licenses, "bpf/LICENSE", "LICENSE.bpf"},
		{&c.documents, "README.md", "README.md"},
		{&c.documents, "SECURITY.md", "SECURITY.md"},
		{&unit, "packaging/systemd/fulgur-agent.service", "fulgur-agent.service"},
		{&c.documents, "packaging/kubernetes/fulgur-agent.yaml", "examples/fulgur-agent.yaml"},
		{&changelog, "CHANGELOG.md", "CHANGELOG.md"},
	} {
		if err := read(file.into, file.name, file.as); err != nil {
			return nil, err
		}
	}
	c.changelog, c.unit = changelog[0], unit[0]
	err = fs.WalkDir(os.DirFS(root), "docs", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case path.Dir(name) == "docs/man":
			return read(&c.manuals, name, path.Base(name))
		}
		return read(&c.documents, name, name)
	})
	return &c, err
}

// tarball returns the files of a tarball with a program.
func (c *contents) tarball(program []byte) []entry {
	list := []entry{{"fulgur", 0o755, program}, c.changelog}
	list = append(list, c.documents...)
	list = append(list, below("examples", []entry{c.unit})...)
	list = append(list, c.licenses...)
	list = append(list, below("man/man1", c.manuals)...)
	for _, shell := range []string{"bash", "fish", "zsh"} {
		list = append(list, below("completions", []entry{c.completions[shell]})...)
	}
	return list
}

// packaged returns the files of a package with a program, at the paths that distributions with
// this package format use.
func (c *contents) packaged(format string, program []byte, version string, at time.Time) ([]entry, error) {
	const doc = "usr/share/doc/fulgur"
	zsh := map[string]string{"deb": "vendor-completions", "rpm": "site-functions"}[format]
	list := []entry{
		{"usr/bin/fulgur", 0o755, program},
		{"usr/share/bash-completion/completions/fulgur", 0o644, c.completions["bash"].data},
		{"usr/share/fish/vendor_completions.d/fulgur.fish", 0o644, c.completions["fish"].data},
		{"usr/share/zsh/" + zsh + "/_fulgur", 0o644, c.completions["zsh"].data},
	}
	list = append(list, below("usr/lib/systemd/system", []entry{c.unit})...)
	list = append(list, below(doc, c.documents)...)
	var copyright bytes.Buffer
	where := map[string]string{"deb": "in\n/usr/share/common-licenses/Apache-2.0", "rpm": "below"}[format]
	copyright.WriteString("fulgur is distributed under the Apache License 2.0, which is " + where + ", the programs that it loads into the\nkernel under the second of these, and the libraries that it is built with under\nthe others.\n")
	for _, l := range c.licenses {
		if l.name != "LICENSE" || format != "deb" {
			fmt.Fprintf(&copyright, "\n== %s\n\n%s", l.name, l.data)
		}
	}
	list = append(list, entry{doc + "/copyright", 0o644, copyright.Bytes()})

	entries := []entry{{doc + "/changelog", 0o644, c.changelog.data}}
	if format == "deb" {
		list = append(list, entry{"usr/share/lintian/overrides/fulgur", 0o644, []byte(lintianOverrides)})
		text := fmt.Appendf(nil, "fulgur (%s-%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n", version, revision, maintainer, at.UTC().Format(time.RFC1123Z))
		entries = append(entries, entry{doc + "/changelog.Debian", 0o644, text})
	}
	for _, e := range append(entries, below("usr/share/man/man1", c.manuals)...) {
		data, err := compressed(e.data)
		if err != nil {
			return nil, err
		}
		list = append(list, entry{e.name + ".gz", e.mode, data})
	}
	return list, nil
}

// compressed returns data as gzip -9n makes it.
func compressed(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// lintianOverrides lists the warnings of Debian's checker that do not apply: the program
// is static to run everywhere, it reads dpkg's database to find the packages with
// symbols, the package is not uploaded to Debian, a library's license contains the
// Apache License for a part of it, and rpm systems have no deb-systemd-invoke.
const lintianOverrides = `fulgur: statically-linked-binary [usr/bin/fulgur]
fulgur: uses-dpkg-database-directly [usr/bin/fulgur]
fulgur: copyright-file-contains-full-apache-2-license
fulgur: maintainer-script-calls-systemctl [postinst:5]
fulgur: maintainer-script-calls-systemctl [postinst:6]
fulgur: maintainer-script-calls-systemctl [prerm:6]
fulgur: maintainer-script-calls-systemctl [postrm:6]
fulgur: maintainer-script-calls-systemctl [postrm:7]
fulgur: initial-upload-closes-no-bugs [usr/share/doc/fulgur/changelog.Debian.gz:1]
`

// below moves entries into a directory.
func below(directory string, entries []entry) []entry {
	moved := make([]entry, len(entries))
	for i, e := range entries {
		moved[i] = entry{path.Join(directory, e.name), e.mode, e.data}
	}
	return moved
}

// thirdParties returns the licenses of the modules that are linked into fulgur,
// and of Go's library, which their authors want to be in every copy.
func thirdParties(root string) ([]byte, error) {
	out, err := goTool(root, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}", "./cmd/fulgur")
	if err != nil {
		return nil, err
	}
	goRoot, err := goTool(root, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	seen := map[string]bool{}
	modules := "Go\t" + strings.TrimSpace(string(goRoot)) + "\n" + string(out)
	for line := range strings.Lines(modules) {
		name, dir, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		license, err := licenseOf(dir)
		if err != nil {
			return nil, fmt.Errorf("license of %s: %w", name, err)
		}
		license = bytes.TrimSpace(license)
		if bytes.HasPrefix(license, []byte("Apache License\n")) {
			license = []byte("Apache License, Version 2.0: see the license of fulgur itself.")
		}
		fmt.Fprintf(&text, "== %s\n\n%s\n\n", name, license)
	}
	return text.Bytes(), nil
}

// licenseOf returns the license of the module in a directory.
func licenseOf(dir string) ([]byte, error) {
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		if len(files) > 0 {
			return os.ReadFile(files[0])
		}
	}
	return nil, fmt.Errorf("no file LICENSE in %s", dir)
}

// goTool runs the go command in the source tree at root and returns what it
// writes.
func goTool(root string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
