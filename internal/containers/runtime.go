package containers

import (
	"slices"

	"fulgur/internal/files/answer"
	"fulgur/internal/profile"
)

// runtime finds containers in the files of a container runtime. A new one is a file with a
// type that implements it, and a line in newRuntimes.
type runtime interface {
	// find returns the runtime's description of a container: its ID, and names as far
	// as known. It returns false if they do not have the container, or cannot be read or
	// trusted.
	find(c candidate) (profile.Owner, bool)
}

// newRuntimes returns the runtimes whose files belong to a user. For root, they are
// the runtimes of the whole system. Docker comes before containerd, which runs docker's
// containers too.
func newRuntimes(p *places, uid int) []runtime {
	s := state{uid: uid}
	if uid != 0 {
		s.patience = answer.NewPatience()
	}
	return []runtime{&docker{state: s, places: p}, &storage{state: s, places: p}, &containerd{state: s, places: p}}
}

// Labels that the kubelet gives to containers, whatever their runtime. The user of a runtime
// may choose labels, too: they count only where the runtime notes the kubelet's labels.
const (
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPodUID    = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// fromLabels fills in the names from the kubelet's labels.
func fromLabels(o *profile.Owner, labels map[string]string) {
	if labels[labelPod] == "" {
		return
	}
	o.Pod, o.Namespace, o.PodUID = labels[labelPod], labels[labelNamespace], labels[labelPodUID]
	if name := labels[labelContainer]; name != "" {
		o.Container = name
	}
}

// addNew appends the elements of more that are not in list and not empty.
func addNew(list []string, more ...string) []string {
	for _, s := range more {
		if s != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
