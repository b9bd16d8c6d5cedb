package containers

import (
	"path/filepath"
	"strings"

	"fulgur/internal/profile"
)

// containerd finds the containers of containerd, in the bundles of its shims:
// STATE/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json, the runtime specification of
// the Open Container Initiative. The annotations come from containerd's package
// internal/cri/annotations and from nerdctl.
type containerd struct {
	state  state
	places *places
}

// shims is the directory of bundles in containerd's state.
const shims = "io.containerd.runtime.v2.task"

// maxNamespaces limits the namespaces of containerd that are searched.
const maxNamespaces = 64

// specification has the relevant fields of a bundle's config.json.
type specification struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		CgroupsPath string `json:"cgroupsPath"`
	} `json:"linux"`
	Mounts []struct {
		Source string `json:"source"`
	} `json:"mounts"`
}

func (d *containerd) find(c candidate) (container, bool) {
	for _, bundle := range d.bundles(c) {
		var spec specification
		if err := d.state.readJSON(filepath.Join(bundle, "config.json"), maxConfig, &spec); err != nil {
			continue
		}
		// Without this check, any cgroup named like a container would count as its cgroup.
		if c.namespace != "" && filepath.Clean(spec.Linux.CgroupsPath) != c.path {
			continue
		}
		o := spec.owner(filepath.Base(filepath.Dir(bundle)))
		o.ContainerID = c.id
		return container{o, limitLabels(spec.Annotations)}, true
	}
	return container{}, false
}

// bundles returns the directories that may be the bundle of a container.
func (d *containerd) bundles(c candidate) (list []string) {
	for _, root := range d.places.containerd() {
		tasks := filepath.Join(root, shims)
		if c.namespace != "" {
			list = append(list, filepath.Join(tasks, c.namespace, c.id))
			continue
		}
		namespaces, err := d.state.names(tasks, maxNamespaces)
		if err != nil {
			continue
		}
		for _, namespace := range namespaces {
			list = append(list, filepath.Join(tasks, namespace, c.id))
		}
	}
	return list
}

// owner returns the owner according to the annotations of a bundle in a namespace of
// containerd. It uses the Kubernetes annotations only in the namespace of containerd's
// Kubernetes plugin, because in other namespaces users may set them.
func (s *specification) owner(namespace string) (o profile.Owner) {
	const cri = "io.kubernetes.cri."
	a := s.Annotations
	if namespace == "moby" {
		o.Runtime = "docker"
		return o
	}
	o.Runtime, o.Container = "containerd", a["nerdctl/name"]
	if namespace != "k8s.io" {
		return o
	}
	o.Image = a[cri+"image-name"]
	if pod := a[cri+"sandbox-name"]; pod != "" {
		o.Pod, o.Namespace, o.PodUID = pod, a[cri+"sandbox-namespace"], a[cri+"sandbox-uid"]
		o.Container = a[cri+"container-name"]
		if o.Container == "" && a[cri+"container-type"] == "sandbox" {
			o.Container = sandbox
		}
	}
	return o
}

// sandbox is the name of the container that holds the namespaces of a pod.
const sandbox = "[pod sandbox]"

// dockerRoot returns docker's data root if the bundle mounts a file of the data root into the
// container with the given ID, as docker does with "hostname".
func (s *specification) dockerRoot(id string) string {
	for _, m := range s.Mounts {
		if root, ok := strings.CutSuffix(m.Source, "/containers/"+id+"/hostname"); ok {
			return clean(root)
		}
	}
	return ""
}
