package testenv

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// KernelBefore reports whether the running kernel is older than major.minor.
func KernelBefore(t testing.TB, major, minor int) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	var version, patchlevel int
	if _, err := fmt.Sscanf(release, "%d.%d", &version, &patchlevel); err != nil {
		t.Fatalf("release %s: %v", release, err)
	}
	return version < major || version == major && patchlevel < minor
}
