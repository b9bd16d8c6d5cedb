package bolt

import (
	"path/filepath"
	"regexp"
)

// profileName matches the names made by ProfileName.
var profileName = regexp.MustCompile(`\.([0-9a-f]{8,64})\.preagg$`)

// ProfileName returns a file name for the profile of b: its name, its build ID if it has one,
// and .preagg. The format itself cannot hold a build ID in a way that all versions of LLVM
// ignore.
func ProfileName(b *Binary) string {
	name := filepath.Base(b.Name)
	if b.BuildID != "" {
		name += "." + b.BuildID
	}
	return name + ".preagg"
}

// ProfileBuildID returns the build ID in a name made by [ProfileName], or "" if there is
// none.
func ProfileBuildID(path string) string {
	if m := profileName.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	return ""
}
