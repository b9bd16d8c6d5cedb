package debugfile

import (
	"bufio"
	"cmp"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"fulgur/internal/files/safeopen"
)

// maxPackages bounds the packages in a database.
const maxPackages = 1 << 16

// Stripped is a file without symbols: the directory that serves as "/" for it, as in
// [File], its path below that, and its build ID, if it has one.
type Stripped struct{ Root, Path, BuildID string }

// Remedies returns a remedy for each file, as the end of a sentence: "install libfoo1-dbgsym
// or set DEBUGINFOD_URLS". The name of the debug package follows the rules of Debian and its
// derivatives. It is derived from the package that owns the file, according to dpkg's
// database below the file's root. The database is read once for all files of a root, and not
// again for the same files. If apt's lists of packages have no archive of -dbgsym packages, the remedy has
// the line that adds it.
func (f *Finder) Remedies(files []Stripped) []string {
	remedies := make([]string, len(files))
	for i, owner := range f.owners.of(files, nil) {
		remedies[i] = f.remedy(owner, f.owners.archive(files[i]), files[i].BuildID)
	}
	return remedies
}

// FindPackages finds the packages of files, for later calls of [Finder.Remedies]. Once stop is
// closed, it reads no more databases.
func (f *Finder) FindPackages(files []Stripped, stop <-chan struct{}) { f.owners.of(files, stop) }

// maxOwners limits the files whose packages are kept.
const maxOwners = 1000

// owners finds and keeps the packages of files. It is safe for concurrent use.
type owners struct {
	mu    sync.Mutex
	known map[owned]string // "" if no package owns the file
	roots map[string]directory
	// archives has the results of [missingArchive] for the roots with packages of files.
	archives map[directory]string
}

// directory identifies a root: /proc/PID/root is the same directory for most processes, and can
// be another one for a later process with the same ID.
type directory struct{ device, inode uint64 }

// owned identifies a file, whatever its build ID.
type owned struct {
	root directory
	path string
}

func newOwners() *owners {
	return &owners{known: map[owned]string{}, roots: map[string]directory{}, archives: map[directory]string{}}
}

// archive returns the result of [missingArchive] for the root of a file.
func (o *owners) archive(f Stripped) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.archives[o.roots[f.Root]]
}

// of returns the package that owns each file, or "" if none does. Once stop is closed, it
// begins no search.
func (o *owners) of(files []Stripped, stop <-chan struct{}) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) > maxOwners {
		clear(o.known)
		clear(o.roots)
		clear(o.archives)
	}
	names := o.identify(files)
	byRoot := map[directory][]string{}
	for _, f := range files {
		root := o.roots[f.Root]
		if _, known := o.known[owned{root, f.Path}]; !known {
			byRoot[root] = append(byRoot[root], f.Path)
		}
	}
	for root, name := range names {
		paths := byRoot[root]
		if len(paths) == 0 || closed(stop) {
			continue
		}
		if found, err := packages(name, paths); err == nil {
			if _, known := o.archives[root]; !known && len(found) > 0 {
				o.archives[root] = missingArchive(name)
			}
			for _, path := range paths {
				o.known[owned{root, path}] = found[path]
			}
		}
	}
	all := make([]string, len(files))
	for i, f := range files {
		all[i] = o.known[owned{o.roots[f.Root], f.Path}]
	}
	return all
}

// identify finds the directories of the files' roots, and returns a name of each one that is accessible.
// The others, whose processes may have exited, keep the directory that was found earlier.
func (o *owners) identify(files []Stripped) map[directory]string {
	names, asked := map[directory]string{}, map[string]bool{"": true}
	for _, f := range files {
		if asked[f.Root] {
			continue
		}
		asked[f.Root] = true
		found, err := safeopen.StatRoot(f.Root)
		if err != nil {
			continue
		}
		if st, ok := found.Sys().(*syscall.Stat_t); ok {
			root := directory{st.Dev, st.Ino}
			o.roots[f.Root], names[root] = root, f.Root
		}
	}
	return names
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// remedy returns the remedy for a file with the given package and build ID, either of
// which may be empty. archive is one that apt's sources lack, "" for none.
func (f *Finder) remedy(owner, archive, id string) string {
	var ways []string
	switch debug := debugPackage(owner); {
	case owner == "":
	case archive != "" && strings.Contains(debug, dbgsym):
		ways = append(ways, fmt.Sprintf("install %s (add the archive %s to apt's sources)", debug, archive))
	default:
		ways = append(ways, "install "+debug)
	}
	switch {
	case id == "" && owner == "":
		return "build it with -g, or do not strip it"
	case id == "":
		// Servers look files up by build ID.
	case f.downloads == nil:
		ways = append(ways, "set DEBUGINFOD_URLS")
	case owner == "":
		ways = append(ways, "add a server that has it to DEBUGINFOD_URLS")
	}
	return strings.Join(ways, " or ")
}

// dbgsym ends the names of packages that are in an archive of their own.
const dbgsym = "-dbgsym"

// debugPackage returns the package with the debug files of a package: NAME-dbgsym in
// Debian, except for the C library, which has libc6-dbg.
func debugPackage(owner string) string {
	name, arch, _ := strings.Cut(owner, ":")
	suffix := dbgsym
	if name == "libc6" {
		suffix = "-dbg"
	}
	if arch != "" {
		arch = ":" + arch
	}
	return name + suffix + arch
}

// packages returns the packages that own paths, according to dpkg's database below root:
// /var/lib/dpkg/info has a file NAME[:ARCH].list for each package, with a path in each line.
// It fails without the database. The name of a package contains the architecture only if it is a
// foreign one.
func packages(root string, paths []string) (map[string]string, error) {
	owners := make(map[string]string, len(paths))
	paths = slices.DeleteFunc(slices.Clone(paths), isLocal)
	if len(paths) == 0 {
		return owners, nil
	}
	dir, err := safeopen.Open(root, "/var/lib/dpkg/info", safeopen.Directory)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Names(maxPackages * 8) // a package has several files
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]string, len(paths))
	for _, p := range paths {
		for _, name := range usrMerged(path.Clean(p)) {
			wanted[name] = p
		}
	}
	buffer := make([]byte, 64<<10)
	for _, name := range likelyFirst(names, paths) {
		owner, ok := strings.CutSuffix(name, ".list")
		if !ok || len(owners) == len(paths) {
			continue
		}
		for _, p := range listed(dir, name, wanted, buffer) {
			owners[p] = strings.TrimSuffix(owner, ":"+runtime.GOARCH) // Debian's names for architectures equal Go's
		}
	}
	return owners, nil
}

// isLocal reports whether a path is reserved for local files, according to the Filesystem
// Hierarchy Standard. No package owns such files, so a search would read the whole database
// in vain.
func isLocal(name string) bool {
	for _, dir := range []string{"/home/", "/root/", "/run/", "/srv/", "/tmp/", "/usr/local/", "/var/tmp/"} {
		if strings.HasPrefix(path.Clean(name), dir) {
			return true
		}
	}
	return false
}

// likelyFirst sorts the names of packages' lists by their similarity to the paths: most files
// are in a package with a similar name, and the search ends as soon as all are found.
func likelyFirst(names, paths []string) []string {
	similar := make(map[string]int, len(names))
	for _, name := range names {
		for _, p := range paths {
			base, n := path.Base(p), 0
			for n < len(base) && n < len(name) && base[n] == name[n] {
				n++
			}
			similar[name] = max(similar[name], n)
		}
	}
	return slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(similar[b], similar[a]) })
}

// listed returns the values of wanted whose keys are lines of the named file in dir. It uses
// buffer.
func listed(dir *safeopen.File, name string, wanted map[string]string, buffer []byte) []string {
	file, err := dir.OpenEntry(name, safeopen.Regular)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	var found []string
	lines := bufio.NewScanner(file)
	lines.Buffer(buffer, len(buffer))
	for lines.Scan() {
		if p, ok := wanted[string(lines.Bytes())]; ok {
			found = append(found, p)
		}
	}
	return found
}
