package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageName is the name of the container image, without a registry.
const imageName = "fulgur"

// imageTag returns the tag of a version. Tags may not have a plus sign.
func imageTag(version string) string {
	return strings.ReplaceAll(strings.TrimPrefix(version, "v"), "+", "-")
}

// image returns the files of a container image with a program: the program, its licenses,
// and directories for temporary files and the spool.
func (c *contents) image(program []byte) []entry {
	list := []entry{{"tmp/", 0o1777, nil}, {"usr/bin/fulgur", 0o755, program}}
	list = append(list, below("usr/share/doc/fulgur", c.licenses)...)
	return append(list, entry{"var/lib/fulgur/", 0o700, nil}, entry{"var/tmp/", 0o1777, nil})
}

// layer is the only layer of an image: a tar archive. It implements
// [partial.UncompressedLayer].
type layer []byte

// DiffID implements [partial.UncompressedLayer].
func (l layer) DiffID() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(l))
	return h, err
}

// Uncompressed implements [partial.UncompressedLayer].
func (l layer) Uncompressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l)), nil
}

// MediaType implements [partial.UncompressedLayer].
func (layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

// newImage returns the image of a version for an architecture.
func newImage(version, arch string, entries []entry, at time.Time) (v1.Image, error) {
	var archive bytes.Buffer
	if err := writeTar(&archive, "", entries, at); err != nil {
		return nil, err
	}
	files, err := partial.UncompressedToLayer(layer(archive.Bytes()))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: at.UTC()}
	base, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			// The agent is what people run in containers. Arguments replace Cmd.
			Entrypoint: []string{"/usr/bin/fulgur"}, Cmd: []string{"agent"},
			Env: []string{"PATH=/usr/bin"}, WorkingDir: "/", User: "0",
			Labels: map[string]string{
				"org.opencontainers.image.title":       "fulgur",
				"org.opencontainers.image.description": "profiler for Linux that uses eBPF",
				"org.opencontainers.image.version":     strings.TrimPrefix(version, "v"),
				"org.opencontainers.image.licenses":    "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
				"org.opencontainers.image.created":     created.Format(time.RFC3339),
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{Layer: files, History: v1.History{Created: created, CreatedBy: "make dist"}})
}

// writeImages writes an image for several architectures, by architecture, as an archive in the
// OCI image layout: https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md.
func writeImages(w io.Writer, version string, architectures []string, images map[string]v1.Image, at time.Time) (err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: images[arch], Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := os.MkdirTemp("", "fulgur-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tag := imageTag(version)
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag,                                          // podman and skopeo
		"io.containerd.image.name":          "docker.io/library/" + imageName + ":" + tag, // ctr and docker
	})); err != nil {
		return err
	}
	var list []entry
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		list = append(list, entry{name, 0o644, data})
		return err
	}); err != nil {
		return err
	}
	if err := writeTar(w, "", list, at); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}
