// Command packaging builds the files of a release: for each architecture a tarball, a deb and
// an rpm package, then for all of them a container image, a chart for helm, a manifest for krew, and
// SHA256SUMS. It needs only Go and
// the programs that make build has built. The same commit makes the same bytes,
// with the same version of Go, whenever and wherever it is run.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	var r release
	flag.StringVar(&r.root, "root", "..", "root of the source tree")
	flag.StringVar(&r.version, "version", "", "what git describe says of the commit")
	epoch := flag.Int64("epoch", 0, "time of all files, in seconds since 1970 (SOURCE_DATE_EPOCH)")
	flag.StringVar(&r.url, "url", "https://fulgur.invalid", "where the files of the release will be, for krew")
	flag.StringVar(&r.programs, "programs", "../build", "directory of fulgur-linux-ARCH")
	flag.StringVar(&r.out, "o", "../build/dist", "directory to write to")
	flag.Parse()
	r.at = time.Unix(*epoch, 0)
	if err := r.make(flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "packaging: %v\n", err)
		os.Exit(1)
	}
}

// release is one version of fulgur.
type release struct {
	root     string // of the source tree
	programs string // the directory of the programs
	out      string // where the packages go
	url      string // where users find them
	version  string
	at       time.Time // of the commit
}

// make makes the packages for architectures, as Go and Debian both call them.
func (r *release) make(architectures []string) error {
	if r.version == "" || len(architectures) == 0 {
		return errors.New("a version and architectures are needed: see make dist")
	}
	c, err := readContents(r.root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	images := map[string]v1.Image{}
	for _, arch := range architectures {
		program, err := os.ReadFile(filepath.Join(r.programs, "fulgur-linux-"+arch))
		if err != nil {
			return err
		}
		if err := r.makeFor(arch, program, c, &sums); err != nil {
			return err
		}
		if images[arch], err = newImage(r.version, arch, c.image(program), r.at); err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
	}
	var archive bytes.Buffer
	if err := writeImages(&archive, r.version, architectures, images, r.at); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := r.add(fmt.Sprintf("fulgur-%s-image.tar", imageTag(r.version)), archive.Bytes(), &sums); err != nil {
		return err
	}
	helm, err := writeChart(r.root, r.version, r.at)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := r.add(fmt.Sprintf("fulgur-agent-%s.tgz", semanticVersion(r.version)), helm, &sums); err != nil {
		return err
	}
	krew, err := plugin(r.version, r.url, sums.String(), architectures)
	if err != nil {
		return fmt.Errorf("manifest for krew: %w", err)
	}
	if err := r.add("fulgur.yaml", krew, &sums); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// tarballName returns the name of the tarball for an architecture, and of the folder in it.
func tarballName(version, arch string) string {
	return fmt.Sprintf("fulgur-%s-linux-%s", strings.TrimPrefix(version, "v"), arch)
}

// makeFor makes the packages for an architecture and adds their checksums up.
func (r *release) makeFor(arch string, program []byte, c *contents, sums *strings.Builder) error {
	var tarball bytes.Buffer
	name := tarballName(r.version, arch)
	if err := writeTarball(&tarball, name+"/", c.tarball(program), r.at); err != nil {
		return fmt.Errorf("tarball for %s: %w", arch, err)
	}
	if err := r.add(name+".tar.gz", tarball.Bytes(), sums); err != nil {
		return err
	}
	version := packageVersion(r.version, r.at)
	for _, format := range formats {
		entries, err := c.packaged(format, program, version, r.at)
		if err != nil {
			return err
		}
		var file bytes.Buffer
		name, err := writePackage(&file, format, version, arch, entries, r.at)
		if err != nil {
			return err
		}
		if err := r.add(name, file.Bytes(), sums); err != nil {
			return err
		}
	}
	return nil
}

// add writes a file of the release, and adds its checksum.
func (r *release) add(name string, data []byte, sums *strings.Builder) error {
	fmt.Fprintf(sums, "%x  %s\n", sha256.Sum256(data), name)
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}
