package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// imageFiles are small files like those of an image.
var imageFiles = (&contents{licenses: []entry{{"LICENSE", 0o644, []byte("free")}}}).image([]byte("\x7fELF"))

// imageArchive returns the archive of an image for two architectures.
func imageArchive(t *testing.T) []byte {
	t.Helper()
	architectures, images := []string{"amd64", "arm64"}, map[string]v1.Image{}
	for _, arch := range architectures {
		var err error
		if images[arch], err = newImage("v1.2.3", arch, imageFiles, commitTime); err != nil {
			t.Fatal(err)
		}
	}
	var archive bytes.Buffer
	if err := writeImages(&archive, "v1.2.3", architectures, images, commitTime); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// Two images of the same files are the same. An archive holds a valid image for each
// architecture, which runs the agent.
func TestImage(t *testing.T) {
	archive := imageArchive(t)
	if !bytes.Equal(archive, imageArchive(t)) {
		t.Error("two images with the same content differ")
	}
	index := readImages(t, archive)
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 2 {
		t.Fatalf("got manifest %+v, %v; want two images", m, err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		if p := m.Manifests[i].Platform; p == nil || p.OS != "linux" || p.Architecture != arch {
			t.Errorf("got platform %v, want linux/%s", p, arch)
		}
		image, err := index.Image(m.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.OS != "linux" || c.Architecture != arch || !c.Created.Equal(commitTime) || c.Config.User != "0" ||
			!slices.Equal(c.Config.Entrypoint, []string{"/usr/bin/fulgur"}) || !slices.Equal(c.Config.Cmd, []string{"agent"}) ||
			c.Config.Labels["org.opencontainers.image.version"] != "1.2.3" {
			t.Errorf("%s: got configuration %+v", arch, c)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("got %d layers, %v; want 1", len(layers), err)
		}
		r, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		type file struct {
			Name string
			Mode int64
			Data string
		}
		var got []file
		for archive := tar.NewReader(r); ; {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(archive)
			if err != nil || h.Uid != 0 || !h.ModTime.Equal(commitTime) {
				t.Errorf("%s: got owner %d, time %v, error %v", h.Name, h.Uid, h.ModTime, err)
			}
			got = append(got, file{h.Name, h.Mode, string(data)})
		}
		if diff := cmp.Diff([]file{
			{"tmp/", 0o1777, ""}, {"usr/", 0o755, ""}, {"usr/bin/", 0o755, ""}, {"usr/bin/fulgur", 0o755, "\x7fELF"},
			{"usr/share/", 0o755, ""}, {"usr/share/doc/", 0o755, ""}, {"usr/share/doc/fulgur/", 0o755, ""}, {"usr/share/doc/fulgur/LICENSE", 0o644, "free"},
			{"var/", 0o755, ""}, {"var/lib/", 0o755, ""}, {"var/lib/fulgur/", 0o700, ""}, {"var/tmp/", 0o1777, ""},
		}, got); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", arch, diff)
		}
	}
}

// readImages returns the only image in an archive, which must be valid.
func readImages(t *testing.T, archive []byte) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "image.tar"), archive, 0o644); err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(name, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	m, err := all.IndexManifest()
	if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Annotations["org.opencontainers.image.ref.name"] == "" {
		t.Fatalf("got %+v, %v; want one image with a tag", m, err)
	}
	index, err := all.ImageIndex(m.Manifests[0].Digest)
	if err == nil {
		err = validate.Index(index)
	}
	if err != nil {
		t.Fatal(err)
	}
	return index
}
