package containers

import (
	"strconv"
	"strings"
)

// Limits of a cgroup's path. Deeper or longer paths have no owner.
const (
	maxDepth = 64
	maxPath  = 4096
	maxPart  = 255 // NAME_MAX
)

// candidate is a possible ID of a container in a cgroup's path.
type candidate struct {
	id string
	// namespace is the namespace of containerd if the path is "/NAMESPACE/ID", as
	// containerd's own clients name cgroups. Otherwise it is empty, and id is hexadecimal.
	namespace string
	// path is the path up to and including the ID, which is the container's cgroup.
	path string
	// uid is the user whose slice contains the cgroup, or 0.
	uid int
}

// split returns the parts of a cgroup's path, or nil if it exceeds the limits.
func split(path string) []string {
	if len(path) > maxPath {
		return nil
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > maxDepth {
		return nil
	}
	for _, part := range parts {
		if len(part) > maxPart {
			return nil
		}
	}
	return parts
}

// candidates returns the possible IDs of containers in a path, the outermost first, because
// programs in a container can create cgroups with the ID of another container.
func candidates(path string) (list []candidate) {
	parts := split(path)
	uid := 0
	if len(parts) > 1 && parts[0] == userSlice {
		if owner, ok := sliceUser(parts[1]); ok { // users can create slices below their own
			uid = owner
		}
	}
	for i, part := range parts {
		at := candidate{path: "/" + strings.Join(parts[:i+1], "/"), uid: uid}
		if id, ok := hexID(part); ok {
			at.id = id
		} else if i == 1 && len(parts) == 2 && isName(parts[0]) && isName(part) && !strings.HasSuffix(parts[0], ".slice") {
			at.id, at.namespace = part, parts[0]
		} else {
			continue
		}
		list = append(list, at)
	}
	return list
}

// hexLength is the length of the IDs of docker, CRI-O, podman and of Kubernetes' containers.
const hexLength = 64

// hexID returns the ID in a part of a path: "ID", "docker-ID.scope", "crio-ID", "libpod-ID".
// It returns no ID for "libpod-conmon-ID", the cgroup of a container's monitor.
func hexID(part string) (id string, ok bool) {
	part = strings.TrimSuffix(part, ".scope")
	if len(part) < hexLength {
		return "", false
	}
	prefix, id := part[:len(part)-hexLength], part[len(part)-hexLength:]
	if prefix != "" && (!strings.HasSuffix(prefix, "-") || strings.HasSuffix(prefix, "conmon-")) {
		return "", false
	}
	return id, strings.Trim(id, "0123456789abcdef") == ""
}

// isName reports whether s is a valid identifier of containerd: letters, digits and
// separators, but not ".."; see containerd's package identifiers.
func isName(s string) bool {
	if s == "" || len(s) > 76 || !isAlphanumeric(s[0]) {
		return false
	}
	for _, c := range []byte(s) {
		if !isAlphanumeric(c) && !strings.ContainsRune("._-", rune(c)) {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// userSlice is systemd's slice that contains the slices of users.
const userSlice = "user.slice"

// sliceUser returns the user of a slice, "user-UID.slice".
func sliceUser(part string) (uid int, ok bool) {
	text, isUser := strings.CutPrefix(part, "user-")
	text, isSlice := strings.CutSuffix(text, ".slice")
	if !isUser || !isSlice {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil && strconv.Itoa(int(n)) == text
}

// unitTypes lists the suffixes of units that may have processes, except slices; see
// systemd.unit(5).
var unitTypes = []string{".service", ".scope", ".mount", ".socket", ".swap"}

// isUnit reports whether a part of a path is the name of a unit other than a slice.
func isUnit(part string) bool {
	for _, ending := range unitTypes {
		if name, ok := strings.CutSuffix(part, ending); ok && name != "" {
			return true
		}
	}
	return false
}

// unit returns the systemd unit of a cgroup, or "". The system's systemd nests units only in
// slices. So the first part that is not a slice is the unit, and any program may have named
// the parts below it. The only exception is the service of a user's manager, which contains
// the units of that user: such a unit is named like "user@1000.service/app.service".
func unit(path string) string {
	parts := split(path)
	own, rest := firstUnit(parts)
	if strings.HasPrefix(own, "user@") && strings.HasSuffix(own, ".service") {
		if users, _ := firstUnit(rest); users != "" {
			return own + "/" + users
		}
	}
	return own
}

// firstUnit returns the first part after slices, if it is a unit, and the parts after it.
func firstUnit(parts []string) (name string, rest []string) {
	for i, part := range parts {
		if strings.HasSuffix(part, ".slice") {
			continue
		}
		if isUnit(part) {
			return part, parts[i+1:]
		}
		break
	}
	return "", nil
}

// podUID returns the pod's UID from the path of a cgroup that the kubelet created, or "". The
// path begins with "/kubepods/burstable/podUID" or
// "/kubepods.slice/…/kubepods-burstable-podUID.slice", where UID has "_" for "-".
func podUID(path string) string {
	parts := split(path)
	if len(parts) == 0 || parts[0] != "kubepods" && parts[0] != "kubepods.slice" {
		return ""
	}
	for _, part := range parts[1:] {
		name, isSlice := strings.CutSuffix(part, ".slice")
		if isSlice {
			if i := strings.LastIndex(name, "-pod"); i >= 0 {
				return strings.ReplaceAll(name[i+len("-pod"):], "_", "-")
			}
		} else if uid, ok := strings.CutPrefix(name, "pod"); ok {
			return uid
		}
	}
	return ""
}
