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
		Image string // as the user named it
	}
}

func (d *docker) find(c candidate) (profile.Owner, bool) {
	if c.namespace != "" {
		return profile.Owner{}, false
	}
	for _, root := range d.places.docker(c) {
		var config dockerConfig
		path := filepath.Join(root, "containers", c.id, "config.v2.json")
		if err := d.state.readJSON(path, maxConfig, &config); err == nil && config.ID == c.id {
			return config.owner(), true
		}
	}
	return profile.Owner{}, false
}

// owner returns the owner according to the file. It ignores labels, which the image and the
// user choose; the pod comes from the kubelet's files.
func (config *dockerConfig) owner() profile.Owner {
	return profile.Owner{
		Runtime: "docker", ContainerID: config.ID,
		Container: strings.TrimPrefix(config.Name, "/"), Image: config.Config.Image,
	}
}
