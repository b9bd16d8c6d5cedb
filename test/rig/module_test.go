package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHeaderPackages(t *testing.T) {
	const depends = `linux-headers-6.12.117+deb12-cloud-amd64
  Depends: linux-base
  Depends: linux-headers-6.12.117+deb12-common
 |Depends: linux-image-6.12.117+deb12-cloud-amd64
  Depends: linux-kbuild-6.12.117+deb12
  Depends: gcc-12
  Suggests: linux-kbuild-6.1
`
	want := []string{"linux-headers-6.12.117+deb12-common", "linux-kbuild-6.12.117+deb12"}
	got := slices.DeleteFunc(dependsOn(depends), func(name string) bool { return !needed.MatchString(name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
