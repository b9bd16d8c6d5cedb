package containers

import (
	"path/filepath"
	"strings"

	"fulgur/internal/profile"
)

// docker finds the containers of Docker Engine, in DATA-ROOT/containers/ID/config.v2.json;
// see container/container.go in github.com/moby/moby.
type docker struct {
	state  state
	places *places
}

// dockerConfig has the relevant fields of config.v2.json.
type dockerConfig struct {
	ID     string
	Name   string // "/web"
	Config struct {
		Image  string // as the user named it
		Labels map[string]string
	}
}

func (d *docker) find(c candidate) (container, bool) {
	if c.namespace != "" {
		return container{}, false
	}
	for _, root := range d.places.docker(c) {
		if config, ok := d.read(root, c.id); ok {
			// cri-dockerd keeps the labels of a pod with the container of its namespaces.
			pod, _ := d.read(root, config.Config.Labels[labelSandbox])
			return container{config.owner(), limitLabels(pod.Config.Labels, config.Config.Labels)}, true
		}
	}
	return container{}, false
}

// labelSandbox is a label of cri-dockerd: the ID of the container that holds the namespaces of a
// container's pod.
const labelSandbox = "io.kubernetes.sandbox.id"

// read reads the file of a container.
func (d *docker) read(root, id string) (config dockerConfig, ok bool) {
	if _, ok := hexID(id); !ok {
		return config, false
	}
	err := d.state.readJSON(filepath.Join(root, "containers", id, "config.v2.json"), maxConfig, &config)
	return config, err == nil && config.ID == id
}

// owner returns the owner according to the file. It ignores labels, which the image and the
// user choose; the pod comes from the kubelet's files.
func (config *dockerConfig) owner() profile.Owner {
	return profile.Owner{
		Runtime: "docker", ContainerID: config.ID,
		Container: strings.TrimPrefix(config.Name, "/"), Image: config.Config.Image,
	}
}
