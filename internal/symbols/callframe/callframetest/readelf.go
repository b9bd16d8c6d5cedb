// Package callframetest lists the FDEs of files with readelf, for tests.
package callframetest

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// FDE is an FDE in readelf's output: the link-time virtual addresses from Start up to End.
type FDE struct {
	Start, End uint64
	// EH is true for an FDE of .eh_frame.
	EH bool
}

var fdeLine = regexp.MustCompile(` FDE cie=[0-9a-f]+ pc=([0-9a-f]+)\.\.([0-9a-f]+)$`)

// FDEs returns the FDEs of the file at path that describe code, in the order of the file.
func FDEs(t *testing.T, path string) []FDE {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "readelf"), "--debug-dump=frames", "--wide", path)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all []FDE
	eh := false
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "Contents of the ") {
			eh = strings.Contains(lines.Text(), ".eh_frame")
		}
		m := fdeLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		start, startErr := strconv.ParseUint(m[1], 16, 64)
		end, endErr := strconv.ParseUint(m[2], 16, 64)
		if startErr != nil || endErr != nil {
			t.Fatalf("readelf: %q", lines.Text())
		}
		if start != 0 && start < end {
			all = append(all, FDE{start, end, eh})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // readelf complains of other sections of some files
	if len(all) == 0 {
		t.Fatalf("%s: no FDE", cmd)
	}
	return all
}

// Addresses returns up to n addresses of the FDE, its first and last among them. n is at
// least 2.
func (f FDE) Addresses(n uint64) []uint64 {
	var addrs []uint64
	for i := range n {
		addrs = append(addrs, f.Start+(f.End-1-f.Start)*i/(n-1))
	}
	return slices.Compact(addrs)
}

// Installed returns programs and libraries of the distribution that are large or special:
// written in C and C++, with much assembly, with cold parts, linked by lld, or with few FDEs.
// It skips the test if there are none. In CI, it fails the test if one is missing. Only long
// tests include chromium and cc1plus, which have tens of thousands of functions.
func Installed(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, tool := range []string{"git", "xz", "chromium"} {
		path := testenv.Tool(t, tool)
		if tool == "chromium" && !testenv.IsLong() {
			continue
		}
		if tool == "chromium" {
			path = "/usr/lib/chromium/chromium" // the command is a script
		}
		all = append(all, path)
	}
	testenv.Tool(t, "g++")
	for _, pattern := range []string{"/usr/lib/gcc/*/*/cc1plus", "/usr/lib/*/libcrypto.so.3", "/usr/lib/*/libc.so.6"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			testenv.Skip(t, "needs %s", pattern)
		}
		if strings.HasSuffix(pattern, "/cc1plus") && !testenv.IsLong() {
			continue
		}
		all = append(all, found...)
	}
	return all
}
