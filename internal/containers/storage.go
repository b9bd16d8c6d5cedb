package containers

import (
	"io/fs"
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

func (d *storage) find(c candidate) (container, bool) {
	if c.namespace != "" {
		return container{}, false
	}
	for _, root := range d.places.storage(c) {
		for _, driver := range drivers {
			dir := filepath.Join(root, driver+"-containers")
			for _, name := range []string{"containers.json", "volatile-containers.json"} {
				for _, stored := range d.list(filepath.Join(dir, name)) {
					if stored.ID == c.id {
						return d.container(dir, stored), true
					}
				}
			}
		}
	}
	return container{}, false
}

// list returns the containers in the file at path, or none if it cannot be read.
func (d *storage) list(path string) (all []storedContainer) {
	if err := d.state.readJSON(path, maxList, &all); err != nil {
		return nil
	}
	return all
}

// container returns a container according to the list and its config.json below dir.
func (d *storage) container(dir string, stored storedContainer) container {
	found := container{owner: stored.owner()}
	spec, err := d.specification(dir, stored.ID)
	if err != nil {
		return found
	}
	if found.owner.Runtime != "cri-o" {
		found.labels = limitLabels(spec.Annotations)
		return found
	}
	labels := spec.criLabels()
	fromLabels(&found.owner, labels)
	if image := spec.Annotations[crio+"ImageName"]; image != "" {
		found.owner.Image = image
	}
	// The labels of the pod are those of the container that holds its namespaces.
	pod, _ := d.specification(dir, spec.Annotations[crio+"SandboxID"])
	found.labels = limitLabels(pod.criLabels(), labels)
	return found
}

// crio begins the annotations of CRI-O.
const crio = "io.kubernetes.cri-o."

// specification reads the config.json of a container below dir.
func (d *storage) specification(dir, id string) (spec specification, err error) {
	if _, ok := hexID(id); !ok {
		return spec, fs.ErrNotExist
	}
	err = d.state.readJSON(filepath.Join(dir, id, "userdata", "config.json"), maxConfig, &spec)
	return spec, err
}

// criLabels returns the labels from the kubelet, which CRI-O records in an annotation. It also copies
// annotations of the pod's author.
func (s *specification) criLabels() (labels map[string]string) {
	if decodeJSON([]byte(s.Annotations[crio+"Labels"]), &labels) != nil {
		return nil
	}
	return labels
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
