package containers

import (
	"path/filepath"

	"fulgur/internal/profile"
)

// storage finds the containers of podman and CRI-O in the files of
// github.com/containers/storage: GRAPHROOT/DRIVER-containers/containers.json, and
// volatile-containers.json for short-lived containers.
type storage struct {
	state  state
	places *places
}

// drivers lists the storage drivers, which are part of the names of directories.
var drivers = []string{"overlay", "vfs", "btrfs", "zfs"}

// storedContainer is an entry of a list.
type storedContainer struct {
	ID    string   `json:"id"`
	Names []string `json:"names"`
	// Metadata is JSON that the runtime wrote.
	Metadata string `json:"metadata"`
}

// storedMetadata is podman's and CRI-O's metadata; see RuntimeContainerMetadata in both. Only
// CRI-O's metadata has a pod.
type storedMetadata struct {
	Image     string `json:"image-name"`
	Name      string `json:"name"` // CRI-O: "k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT"
	Pod       string `json:"pod-name"`
	PodID     string `json:"pod-id"`
	Container string `json:"metadata-name"`
	Namespace string `json:"namespace"`
	PodUID    string `json:"uid"`
}

func (d *storage) find(c candidate) (profile.Owner, bool) {
	if c.namespace != "" {
		return profile.Owner{}, false
	}
	for _, root := range d.places.storage(c) {
		for _, driver := range drivers {
			dir := filepath.Join(root, driver+"-containers")
			for _, name := range []string{"containers.json", "volatile-containers.json"} {
				for _, stored := range d.list(filepath.Join(dir, name)) {
					if stored.ID == c.id {
						return d.owner(dir, stored), true
					}
				}
			}
		}
	}
	return profile.Owner{}, false
}

// list returns the containers in the file at path, or none if it cannot be read.
func (d *storage) list(path string) (all []storedContainer) {
	if err := d.state.readJSON(path, maxList, &all); err != nil {
		return nil
	}
	return all
}

// owner returns the owner according to the list and, for CRI-O, the container's config.json
// below dir.
func (d *storage) owner(dir string, stored storedContainer) profile.Owner {
	o := stored.owner()
	if o.Runtime != "cri-o" {
		return o
	}
	var spec specification
	if err := d.state.readJSON(filepath.Join(dir, stored.ID, "userdata", "config.json"), maxConfig, &spec); err == nil {
		// CRI-O copies annotations of the pod's author, but records the kubelet's labels in a
		// separate annotation.
		var labels map[string]string
		if decodeJSON([]byte(spec.Annotations["io.kubernetes.cri-o.Labels"]), &labels) == nil {
			fromLabels(&o, labels)
		}
		if image := spec.Annotations["io.kubernetes.cri-o.ImageName"]; image != "" {
			o.Image = image
		}
	}
	return o
}

func (stored *storedContainer) owner() profile.Owner {
	o := profile.Owner{Runtime: "podman", ContainerID: stored.ID}
	if len(stored.Names) > 0 {
		o.Container = stored.Names[0]
	}
	var m storedMetadata
	if decodeJSON([]byte(stored.Metadata), &m) != nil {
		return o
	}
	o.Image = m.Image
	if m.PodID == "" && m.Pod == "" {
		return o
	}
	o.Runtime, o.Pod, o.Namespace, o.PodUID = "cri-o", m.Pod, m.Namespace, m.PodUID
	if m.Container != "" {
		o.Container = m.Container
	}
	return o
}
