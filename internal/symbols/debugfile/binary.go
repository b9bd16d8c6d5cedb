package debugfile

import (
	"os"
	"path"
	"strings"
)

// Place is where a file may be: at Path below the directory Root.
type Place struct{ Root, Path string }

// Binaries returns the places where the binary at an absolute path may be, the best first: below
// [Config.Root], here, and in perf's cache, if its build ID is known. The caller compares the
// build ID. A nil Finder looks only here.
func (f *Finder) Binaries(name, buildID string) []Place {
	if f == nil {
		return []Place{{"/", name}}
	}
	var places []Place
	if f.root != "" {
		places = append(places, Place{f.root, name})
	}
	places = append(places, Place{"/", name})
	if cached := f.cached(buildID, "elf"); cached != "" {
		places = append(places, Place{"/", cached})
	}
	return places
}

// cached returns the path of a file in perf's cache of files by build ID, or "": DIR/.build-id/xx/yyy
// is a link to a folder with the file, or with old versions of perf to the file.
func (f *Finder) cached(buildID, name string) string {
	const least = 4
	if f.buildIDs == "" || !path.IsAbs(f.buildIDs) || len(buildID) < least || strings.Trim(buildID, "0123456789abcdef") != "" {
		return ""
	}
	entry := path.Join(f.buildIDs, ".build-id", buildID[:2], buildID[2:])
	if info, err := os.Stat(entry); err == nil && info.Mode().IsRegular() {
		return entry
	}
	return path.Join(entry, name)
}

// CachedKallsyms returns the path of the symbols of the kernel with a build ID, in perf's cache, or "" if
// there are none.
func (f *Finder) CachedKallsyms(buildID string) string {
	cached := f.cached(buildID, "kallsyms")
	if cached == "" {
		return ""
	}
	for _, name := range []string{cached, path.Join(f.buildIDs, "[kernel.kallsyms]", buildID, "kallsyms")} {
		if info, err := os.Stat(name); name != "" && err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}
