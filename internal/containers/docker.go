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

// dockerConfig is the part of config.v2.json that has names.
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

// owner returns the owner that the file names. The image and the user choose the
// labels, so they name no pod: the kubelet's files do.
func (config *dockerConfig) owner() profile.Owner {
	return profile.Owner{
		Runtime: "docker", ContainerID: config.ID,
		Container: strings.TrimPrefix(config.Name, "/"), Image: config.Config.Image,
	}
}
