package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

// mirror is the Debian mirror of this machine's apt.
type mirror struct {
	codename string // of this machine's release
	main     string // URI of the archive
	security string // URI of the archive of security updates, or ""
	keyring  string // path of the keys that sign the archives; "" means all that apt trusts
}

var errNoMirror = errors.New("the apt of this machine has no Debian mirror")

// debianKeyring is in Debian's package debian-archive-keyring.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// machineMirror asks apt for this machine's mirror.
func machineMirror(ctx context.Context) (mirror, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return mirror{}, fmt.Errorf("%w: there is no apt-get", errNoMirror)
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return mirror{}, fmt.Errorf("%w: %w", errNoMirror, err)
	}
	m := mirror{codename: codename(string(release))}
	if m.codename == "" {
		return mirror{}, fmt.Errorf("%w: /etc/os-release has no VERSION_CODENAME", errNoMirror)
	}
	cmd := command(ctx, "", "apt-get", "indextargets", "--no-release-info",
		"--format", "$(RELEASE) $(COMPONENT) $(SITE) $(SOURCESENTRY)", "Created-By: Packages")
	cmd.Stdout = nil
	targets, err := cmd.Output()
	if err != nil {
		return mirror{}, fmt.Errorf("list the sources of apt: %w", err)
	}
	source := m.read(string(targets))
	if m.main == "" {
		return mirror{}, fmt.Errorf("%w of %s", errNoMirror, m.codename)
	}
	if text, err := os.ReadFile(source); err == nil {
		m.keyring = signedBy(string(text))
	}
	if _, err := os.Stat(debianKeyring); m.keyring == "" && err == nil {
		m.keyring = debianKeyring
	}
	return m, nil
}

// codename returns VERSION_CODENAME of an os-release file.
func codename(release string) string {
	lines := bufio.NewScanner(strings.NewReader(release))
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}

// read parses the output of apt-get indextargets: release, component, URI and
// source. Other archives may have a release of the same name, so an archive whose
// path ends in debian is preferred. It returns the path of the source file that
// contains the archive.
func (m *mirror) read(targets string) (source string) {
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) != 4 || f[1] != "main" {
			continue
		}
		uri := strings.TrimSuffix(f[2], "/")
		switch f[0] {
		case m.codename:
			if m.main == "" || path.Base(m.main) != "debian" && path.Base(uri) == "debian" {
				m.main = uri
				source, _, _ = strings.Cut(f[3], ":")
			}
		case m.codename + "-security":
			m.security = uri
		}
	}
	return source
}

// signature matches the option that names a keyring, in both of apt's formats of
// sources.
var signature = regexp.MustCompile(`(?i)\bsigned-by\s*[:=]\s*(/[^\s,\]]+)`)

// signedBy returns the keyring that a source file names first, or "".
func signedBy(source string) string {
	if found := signature.FindStringSubmatch(source); found != nil {
		return found[1]
	}
	return ""
}

// sources returns the suites' sources, in the format of apt's .sources files.
func (m mirror) sources(suites []string) string {
	var b strings.Builder
	for _, suite := range suites {
		uri := m.main
		if strings.HasSuffix(suite, "-security") {
			uri = m.security
		}
		if uri == "" {
			continue
		}
		fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nTargets: Packages\n", uri, suite)
		if m.keyring != "" {
			fmt.Fprintf(&b, "Signed-By: %s\n", m.keyring)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// own returns the suites of this machine's release.
func (m mirror) own() []string {
	return slices.DeleteFunc([]string{m.codename, m.codename + "-security"}, func(s string) bool {
		return m.security == "" && strings.HasSuffix(s, "-security")
	})
}
