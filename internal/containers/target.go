package containers

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
)

// ErrNotFound means that no running container, unit or pod has the name.
var ErrNotFound = errors.New("not found")

// Group is the cgroup of a container, unit or pod.
type Group struct {
	// Name is the name of the container, unit or pod, see [profile.Owner.GroupName].
	Name string
	// Path is the cgroup's directory.
	Path string
	// Unified is whether Path is in the version 2 hierarchy.
	Unified bool
}

// maxCgroups limits the cgroups that are searched.
const maxCgroups = 1 << 16

// maxSearch limits the time of a search.
const maxSearch = 10 * time.Second

// Find returns the group of a container, unit or pod. It accepts a container's name, ID, or
// the beginning of its ID; a unit's name, with or without ".service"; and a pod's
// "NAMESPACE/NAME". If none matches, the error wraps [ErrNotFound] and lists the most similar
// existing names. If several match, the error lists their cgroups.
func Find(by profile.Grouping, name string) (Group, error) {
	mounted, err := procfs.Mounts()
	if err != nil {
		return Group{}, err
	}
	return find(NewFinder(), hierarchies(mounted), by, name)
}

// hierarchy is a mounted hierarchy of cgroups.
type hierarchy struct {
	mountpoint string
	unified    bool
}

// hierarchies returns the mounted hierarchies: version 2, then systemd's, then others.
func hierarchies(mounted []*procfs.Mount) (list []hierarchy) {
	rank := func(m *procfs.Mount) int {
		switch {
		case m.FSType == "cgroup2":
			return 0
		case strings.Contains(m.VFSOptions, "name=systemd"):
			return 1
		}
		return 2
	}
	sorted := slices.Clone(mounted)
	slices.SortStableFunc(sorted, func(a, b *procfs.Mount) int { return cmp.Compare(rank(a), rank(b)) })
	for _, m := range sorted {
		if m.Root == "/" && (m.FSType == "cgroup2" || m.FSType == "cgroup") {
			list = append(list, hierarchy{m.Mountpoint, m.FSType == "cgroup2"})
		}
	}
	return list
}

func find(f *Finder, in []hierarchy, by profile.Grouping, name string) (Group, error) {
	seen := map[string]bool{}
	for _, h := range in {
		groups, err := f.groups(h, by)
		if err != nil {
			return Group{}, err
		}
		var exact, others []Group
		for _, g := range groups {
			seen[g.Name] = true
			switch g.match(by, name) {
			case matchExact:
				exact = append(exact, g.Group)
			case matchPart:
				others = append(others, g.Group)
			}
		}
		if len(exact) > 0 {
			others = exact
		}
		if len(others) == 1 {
			return others[0], nil
		}
		if len(others) > 1 {
			return Group{}, ambiguous(by, name, others)
		}
	}
	return Group{}, notFound(by, name, slices.Sorted(maps.Keys(seen)))
}

// ownedGroup is a group with its owner.
type ownedGroup struct {
	Group
	owner profile.Owner
}

// match is the quality of a match.
type match uint8

const (
	matchNone match = iota
	matchPart
	matchExact
)

// minPart is the minimum length of an abbreviated ID.
const minPart = 4

func (g *ownedGroup) match(by profile.Grouping, name string) match {
	switch {
	case name == g.Name, by == profile.GroupContainer && name == g.owner.ContainerID:
		return matchExact
	case by == profile.GroupUnit && name+".service" == g.Name,
		by == profile.GroupContainer && (name == g.owner.Container || len(name) >= minPart && strings.HasPrefix(g.owner.ContainerID, name)):
		return matchPart
	}
	return matchNone
}

// groups returns the outermost cgroup of each container, unit or pod in a hierarchy.
func (f *Finder) groups(h hierarchy, by profile.Grouping) (list []ownedGroup, err error) {
	n, begin := 0, time.Now()
	names := map[string]string{} // of the groups in list, by path
	err = filepath.WalkDir(h.mountpoint, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
			return nil // it has ended in the meantime
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		}
		if n++; n > maxCgroups {
			return fmt.Errorf("more than %d cgroups in %s: use the path of the cgroup instead", maxCgroups, h.mountpoint)
		}
		if time.Since(begin) > maxSearch {
			return fmt.Errorf("%s has too many cgroups to search in %s: use the path of the cgroup instead", h.mountpoint, maxSearch)
		}
		own := "/" + strings.TrimPrefix(strings.TrimPrefix(path, h.mountpoint), "/")
		o := f.Owner(own)
		name := o.GroupName(by)
		if strings.HasPrefix(name, "[") && name == (profile.Owner{}).GroupName(by) {
			return nil
		}
		if by == profile.GroupPod {
			path = podDirectory(path, own)
		}
		if _, known := names[path]; known {
			return nil
		}
		for up := filepath.Dir(path); len(up) >= len(h.mountpoint) && up != "/"; up = filepath.Dir(up) {
			if names[up] == name {
				return nil
			}
		}
		names[path] = name
		list = append(list, ownedGroup{Group{name, path, h.unified}, o})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("search the cgroups: %w", err)
	}
	return list, nil
}

// podDirectory returns the ancestor of a container's cgroup with the pod's UID in its name,
// or path if there is none. path is the directory of the cgroup, and own its path in the
// hierarchy.
func podDirectory(path, own string) string {
	for at, up := own, path; podUID(at) != ""; at, up = filepath.Dir(at), filepath.Dir(up) {
		if podUID(filepath.Dir(at)) == "" {
			return up
		}
	}
	return path
}

// maxListed limits the names and cgroups in an error.
const maxListed = 5

func ambiguous(by profile.Grouping, name string, groups []Group) error {
	var list []string
	for _, g := range groups[:min(len(groups), maxListed)] {
		list = append(list, g.Path)
	}
	return fmt.Errorf("%d %ss match %q: use one of their cgroups instead: %s", len(groups), by, name, strings.Join(list, ", "))
}

func notFound(by profile.Grouping, name string, seen []string) error {
	if len(seen) == 0 {
		return fmt.Errorf("%s %q %w: no %s is running", by, name, ErrNotFound, by)
	}
	return fmt.Errorf("%s %q %w: running, among others: %s", by, name, ErrNotFound, strings.Join(mostSimilar(name, seen, maxListed), ", "))
}

// mostSimilar returns the n names that are most similar to name, the most similar first.
func mostSimilar(name string, names []string, n int) []string {
	sorted := slices.Clone(names)
	key := func(s string) int {
		d := distance(strings.ToLower(name), strings.ToLower(s))
		if strings.Contains(strings.ToLower(s), strings.ToLower(name)) {
			d = 0
		}
		return d
	}
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a, b)) })
	return sorted[:min(len(sorted), n)]
}

// maxCompared limits the bytes of names whose distance is computed.
const maxCompared = 128

// distance returns the Levenshtein distance of two names: how many bytes to insert, remove or
// replace to turn one into the other.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxCompared)], b[:min(len(b), maxCompared)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, row[j+1]+1, replace)
		}
	}
	return row[len(b)]
}
