package debugfile

import (
	"bufio"
	"io"
	"strings"

	"fulgur/internal/files/safeopen"
)

// maxLists bounds the lists of packages that apt has, and maxRelease the size of the file that names the
// distribution.
const (
	maxLists   = 1 << 12
	maxRelease = 64 << 10
)

// debugArchives has for each distribution the archive of -dbgsym packages and its suite, with CODENAME for
// that of the release. Which server has it depends on the mirror.
var debugArchives = map[string]string{
	"debian": "debian-debug, suite CODENAME-debug,",
	"ubuntu": "ddebs, suite CODENAME,",
}

// missingArchive returns the archive to add to apt's sources before apt can install -dbgsym packages below
// root: "" if it knows an archive of them, or if nothing is known about that.
func missingArchive(root string) string {
	dir, err := safeopen.Open(root, "/var/lib/apt/lists", safeopen.Directory)
	if err != nil {
		return ""
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Names(maxLists)
	if err != nil {
		return ""
	}
	lists := 0
	for _, name := range names {
		if !strings.Contains(name, "_Packages") {
			continue
		}
		lists++
		// "HOST_debian-debug_dists_bookworm-debug_main_binary-amd64_Packages"
		if host, _, _ := strings.Cut(name, "_"); strings.Contains(name, "-debug_") || strings.HasPrefix(host, "ddebs") {
			return ""
		}
	}
	if lists == 0 {
		return "" // apt was not updated, or cleaned its lists
	}
	release := osRelease(root)
	archive := debugArchives[release["ID"]]
	codename := release["VERSION_CODENAME"]
	if archive == "" || codename == "" || strings.ContainsFunc(codename, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return ""
	}
	return strings.Replace(archive, "CODENAME", codename, 1)
}

// osRelease returns the variables of /etc/os-release below root, see os-release(5).
func osRelease(root string) map[string]string {
	variables := map[string]string{}
	file, err := safeopen.Open(root, "/etc/os-release", safeopen.Regular)
	if err != nil {
		return variables
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(io.LimitReader(file, maxRelease)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok {
			variables[key] = strings.Trim(value, `"'`)
		}
	}
	return variables
}
