package profile

import (
	"path"
	"strings"
)

// Owner is the container, the pod and the systemd unit of a process. Fields are empty if
// the process has none, or the name is unknown. All names are untrusted.
type Owner struct {
	// Unknown means that the cgroup of the process was not known: it may have any owner.
	Unknown bool
	// Unit is the innermost systemd unit, "nginx.service".
	Unit string
	// ContainerID is the container's ID as its runtime shows it, and Container its name:
	// in a pod, the name in the pod's specification.
	ContainerID, Container string
	// Image is the name of the container's image, and Runtime the kind of runtime:
	// "docker", "containerd", "cri-o" or "podman".
	Image, Runtime string
	// Pod, Namespace and PodUID identify the Kubernetes pod of the container.
	Pod, Namespace, PodUID string
}

// fields returns pointers to all names.
func (o *Owner) fields() []*string {
	return []*string{&o.Unit, &o.ContainerID, &o.Container, &o.Image, &o.Runtime, &o.Pod, &o.Namespace, &o.PodUID}
}

// PprofField returns the field of an owner that a label with this key in a pprof file has, nil for
// other keys.
func (o *Owner) PprofField(key string) *string {
	switch key {
	case "container":
		return &o.Container
	case "container_id":
		return &o.ContainerID
	case "image":
		return &o.Image
	case "pod":
		return &o.Pod
	case "namespace":
		return &o.Namespace
	case "unit":
		return &o.Unit
	}
	return nil
}

// Grouping is the meaning of the first frame of stacks.
type Grouping uint8

// The groupings.
const (
	GroupNone Grouping = iota
	GroupContainer
	GroupUnit
	GroupPod
	// GroupLabel groups by the values of a label, see [Meta.GroupLabel].
	GroupLabel
)

// groupings holds the names of groupings.
var groupings = [...]string{GroupNone: "", GroupContainer: "container", GroupUnit: "unit", GroupPod: "pod", GroupLabel: "label"}

// String returns the grouping's name, "" for none.
func (g Grouping) String() string {
	if int(g) < len(groupings) {
		return groupings[g]
	}
	return ""
}

// ParseGrouping returns the grouping that [Grouping.String] calls name, or GroupNone.
func ParseGrouping(name string) Grouping {
	for g, known := range groupings {
		if name == known {
			return Grouping(g)
		}
	}
	return GroupNone
}

// shortID is the number of characters of a container ID that stand for a name.
const shortID = 12

// ContainerName returns the name of the container, the beginning of its ID if it has no
// name, or "" without a container. The name of a pod's container begins with the
// namespace and the pod: "default/web-1/nginx".
func (o Owner) ContainerName() string {
	name := o.Container
	if name == "" {
		name = o.ContainerID[:min(len(o.ContainerID), shortID)]
	}
	if name != "" && o.Pod != "" {
		return o.PodName() + "/" + name
	}
	return name
}

// PodName returns "NAMESPACE/POD", or "" without a pod.
func (o Owner) PodName() string {
	if o.Pod == "" {
		return ""
	}
	return o.Namespace + "/" + o.Pod
}

// Service returns the name of the service that the process belongs to, or "" if it is
// unknown: its container's name or its unit without the ending. A session or a user's
// manager is not a service. Only Kubernetes knows the service of a pod.
func (o Owner) Service() string {
	switch {
	case o.Pod != "" || o.PodUID != "":
		return ""
	case o.ContainerID != "":
		return o.Container
	}
	name, isService := strings.CutSuffix(o.Unit, ".service")
	if !isService || strings.HasPrefix(name, "user@") {
		return ""
	}
	return path.Base(name)
}

// GroupName returns the name of the owner in a grouping, "[no container]" if it has none,
// "[unknown container]" if that is unknown, and "" for GroupNone.
func (o Owner) GroupName(g Grouping) string {
	var name string
	switch g {
	case GroupContainer:
		name = o.ContainerName()
	case GroupUnit:
		name = o.Unit
	case GroupPod:
		name = o.PodName()
	default:
		return ""
	}
	switch {
	case name != "":
		return name
	case o.Unknown:
		return "[unknown " + g.String() + "]"
	}
	return "[no " + g.String() + "]"
}

// OwnerNamed returns an owner that [Owner.GroupName] calls name in a grouping, for profiles
// that have nothing else of it.
func OwnerNamed(g Grouping, name string) Owner {
	switch {
	case name == (Owner{}).GroupName(g):
		return Owner{}
	case name == Owner{Unknown: true}.GroupName(g):
		return Owner{Unknown: true}
	}
	namespace, pod, isPod := strings.Cut(name, "/")
	switch g {
	case GroupContainer:
		if pod, container, ok := strings.Cut(pod, "/"); ok {
			return Owner{Container: container, Pod: pod, Namespace: namespace}
		}
		return Owner{Container: name}
	case GroupUnit:
		return Owner{Unit: name}
	case GroupPod:
		if isPod {
			return Owner{Pod: pod, Namespace: namespace}
		}
	}
	return Owner{}
}

// Owner returns the owner of a task, the zero Owner if it has none.
func (p *Profile) Owner(t TaskID) Owner { return p.OwnerAt(p.Tasks[t].Owner) }

// OwnerAt returns the owner with an ID, the zero Owner for 0.
func (p *Profile) OwnerAt(id OwnerID) Owner {
	if int(id) < len(p.Owners) { // profiles without owners may lack row 0
		return p.Owners[id]
	}
	return Owner{}
}

// Group returns the name of the group of a task, "" in a profile without groups; see
// [Meta.Grouping].
func (p *Profile) Group(t TaskID) string {
	if p.Meta.Grouping == GroupNone {
		return ""
	}
	if p.Meta.Grouping == GroupLabel {
		return p.LabelsOf(t).groupName(p.Meta.GroupLabel)
	}
	return p.Owner(t).GroupName(p.Meta.Grouping)
}

// groupName returns the value of a label, or "[no KEY]" if it is missing or empty, since a frame
// needs a name.
func (l Labels) groupName(key string) string {
	if value, _ := l.Value(key); value != "" {
		return value
	}
	return "[no " + key + "]"
}

// LabelsNamed returns the labels of tasks in a group with the given name, see [Profile.Group]. It
// is for inputs that have the names of groups instead of labels.
func LabelsNamed(key, name string) Labels {
	if name == Labels(nil).groupName(key) {
		return nil
	}
	return Labels{{Key: key, Value: name}}
}
