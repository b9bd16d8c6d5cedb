package containers

import (
	"slices"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/profile"
)

// runtime finds containers in the files of a container runtime. To add one, implement runtime
// in a new file, and add a line to newRuntimes.
type runtime interface {
	// find returns the ID of a container, and its names and labels as far as known. It returns false if
	// the runtime's files do not have the container, or cannot be read or trusted.
	find(c candidate) (container, bool)
}

// newRuntimes returns the runtimes whose files belong to a user, or for root the runtimes of
// the whole system. Docker comes before containerd, because containerd also runs docker's
// containers.
func newRuntimes(p *places, uid int) []runtime {
	s := state{uid: uid}
	if uid != 0 {
		s.budget = safeopen.NewBudget()
	}
	return []runtime{&docker{state: s, places: p}, &storage{state: s, places: p}, &containerd{state: s, places: p}}
}

// Labels that the kubelet gives to containers of every runtime. Users of a runtime may set
// the same labels, so they count only where only the kubelet can have set them.
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

// addNew appends the elements of more that are not empty and not in list yet.
func addNew(list []string, more ...string) []string {
	for _, s := range more {
		if s != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// Limits of the labels of a container.
const (
	maxLabels     = 256
	maxLabelBytes = 16 << 10 // of all keys and values
)

// limitLabels merges labels, the most important last, and drops all if they exceed the limits.
func limitLabels(all ...map[string]string) map[string]string {
	merged, size := map[string]string{}, 0
	for _, labels := range all {
		for key, value := range labels {
			merged[key] = value
			size += len(key) + len(value)
		}
	}
	if len(merged) == 0 || len(merged) > maxLabels || size > maxLabelBytes {
		return nil
	}
	return merged
}
