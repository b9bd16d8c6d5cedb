package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"fulgur/internal/testenv"
)

var commitTime = time.Unix(1_700_000_000, 0)

func TestPackageVersion(t *testing.T) {
	// Each version is newer than the previous one.
	described := []struct{ git, want string }{
		{"0123456", "0~20231114221320.0123456"},
		{"0123456-dirty", "0~20231114221320.0123456+dirty"},
		{"v0.1.0", "0.1.0"},
		{"v0.1.0-5-g0123456", "0.1.0+5.g0123456"},
		{"v0.1.0-5-g0123456-dirty", "0.1.0+5.g0123456.dirty"},
		{"v0.2.0", "0.2.0"},
		{"v0.10.0", "0.10.0"},
	}
	dpkg := testenv.Tool(t, "dpkg")
	before := "0~1"
	for _, d := range described {
		got := packageVersion(d.git, commitTime)
		if got != d.want {
			t.Errorf("%s: got %s, want %s", d.git, got, d.want)
		}
		if out, err := exec.Command(dpkg, "--compare-versions", before, "lt", got).CombinedOutput(); err != nil {
			t.Errorf("got %s, want it newer than %s: %v: %s", got, before, err, out)
		}
		before = got
	}
}

func TestSemanticVersion(t *testing.T) {
	for described, want := range map[string]string{
		"v1.2.3": "1.2.3", "v0.1.0-5-g0123456-dirty": "0.1.0-5-g0123456-dirty", "0123456": "0.0.0-g0123456", "0123456-dirty": "0.0.0-g0123456-dirty",
	} {
		if got := semanticVersion(described); got != want {
			t.Errorf("%s: got %s, want %s", described, got, want)
		}
	}
}

// The chart has the version of fulgur, and is in one folder.
func TestWriteChart(t *testing.T) {
	file, err := writeChart("..", "v1.2.3", commitTime)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "chart.tgz")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, testenv.Tool(t, "tar"), "-C", dir, "-xzf", path)
	text, err := os.ReadFile(filepath.Join(dir, "fulgur-agent", "Chart.yaml"))
	if err != nil || strings.Count(string(text), ": 1.2.3\n") != 2 {
		t.Errorf("got %s, %v, want the version twice", text, err)
	}
	for _, name := range []string{"values.yaml", "templates/fulgur-agent.yaml"} {
		same(t, "kubernetes/chart/"+name, filepath.Join(dir, "fulgur-agent", name))
	}
}

// The manifest for krew is YAML with the checksums of the tarballs.
func TestPlugin(t *testing.T) {
	text, err := plugin("v1.2.3", "https://example.com/v1", "aa  fulgur-1.2.3-linux-amd64.tar.gz\nbb  fulgur-1.2.3-linux-arm64.tar.gz\n", []string{"amd64", "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				URI, SHA256, Bin string
				Files            []struct{ From, To string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.Metadata.Name != "fulgur" || m.Spec.Version != "v1.2.3" || len(m.Spec.Platforms) != 2 {
		t.Fatalf("got %+v", m)
	}
	p := m.Spec.Platforms[1]
	if p.URI != "https://example.com/v1/fulgur-1.2.3-linux-arm64.tar.gz" || p.SHA256 != "bb" || p.Bin != "fulgur" || p.Files[0].From != "fulgur-1.2.3-linux-arm64/fulgur" {
		t.Errorf("got %+v", p)
	}
	if _, err := plugin("v1.2.3", "", "", []string{"amd64"}); err == nil {
		t.Error("without a checksum: got no error")
	}
}

// sampleFiles have odd and even sizes, shared directories and a long path.
var sampleFiles = []entry{
	{"usr/bin/tool", 0o755, []byte("#!/bin/sh\necho tool\n")},
	{"usr/share/doc/tool/odd", 0o644, []byte("1")},
	{"usr/share/doc/tool/" + strings.Repeat("long/", 40) + "even", 0o644, []byte("12")},
}

// Debian's tools read the package and install its files.
func TestDeb(t *testing.T) {
	dpkg := testenv.Tool(t, "dpkg-deb")
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if name, err := writePackage(b, "deb", "1.2.3", "amd64", sampleFiles, commitTime); err != nil || name != "fulgur_1.2.3-1_amd64.deb" {
			t.Fatal(name, err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two packages with the same content differ")
	}
	deb, root := filepath.Join(t.TempDir(), "tool.deb"), t.TempDir()
	if err := os.WriteFile(deb, first.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := output(t, dpkg, "--field", deb, "Package", "Version", "Architecture"), "Package: fulgur\nVersion: 1.2.3-1\nArchitecture: amd64\n"; got != want {
		t.Errorf("got description %q, want %q", got, want)
	}
	output(t, dpkg, "--raw-extract", deb, root)
	for _, e := range sampleFiles {
		path := filepath.Join(root, e.name)
		info, err := os.Stat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, e.data) || int64(info.Mode().Perm()) != e.mode || !info.ModTime().Equal(commitTime) {
			t.Errorf("%s: got %q, %v, %v, %v; want %q, mode %o, %v", e.name, got, info.Mode(), info.ModTime(), err, e.data, e.mode, commitTime)
		}
	}
	sums := exec.Command("md5sum", "--check", "--quiet", "DEBIAN/md5sums")
	sums.Dir = root
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// rpm can read the package, and finds the files with their contents, modes and times.
func TestRPM(t *testing.T) {
	rpm := testenv.Tool(t, "rpm")
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if name, err := writePackage(b, "rpm", "1.2.3", "arm64", sampleFiles, commitTime); err != nil || name != "fulgur-1.2.3-1.aarch64.rpm" {
			t.Fatal(name, err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two packages with the same content differ")
	}
	file := filepath.Join(t.TempDir(), "tool.rpm")
	if err := os.WriteFile(file, first.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	query := []string{"--query", "--package", "--nosignature", "--queryformat"}
	want := "fulgur 1.2.3 1 aarch64 root\n"
	if got := output(t, rpm, append(query, "%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{FILEUSERNAME}\n", file)...); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var lines []string
	for _, e := range sampleFiles {
		lines = append(lines, fmt.Sprintf("/%s %x %o %d\n", e.name, sha256.Sum256(e.data), 0o100000|e.mode, commitTime.Unix()))
	}
	slices.Sort(lines)
	got := slices.Sorted(strings.Lines(output(t, rpm, append(query, "[%{FILENAMES} %{FILEDIGESTS} %{FILEMODES:octal} %{FILEMTIMES}\n]", file)...)))
	if d := cmp.Diff(lines, got); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

// distVar names the directory with the output of make dist.
const distVar = "FULGUR_DIST"

// The output of make dist is complete: the checksums are correct, and the program in each
// package for this machine has the package's version.
func TestDist(t *testing.T) {
	dist := testenv.Given(t, distVar)
	sums := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
	sums.Dir = dist
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	archive, err := os.ReadFile(one(t, filepath.Join(dist, "fulgur-*-image.tar")))
	if err != nil {
		t.Fatal(err)
	}
	readImages(t, archive)
	one(t, filepath.Join(dist, "fulgur-agent-*.tgz"))
	one(t, filepath.Join(dist, "fulgur.yaml"))
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			deb := one(t, filepath.Join(dist, "fulgur_*_"+arch+".deb"))
			root, unpacked := t.TempDir(), t.TempDir()
			output(t, testenv.Tool(t, "dpkg-deb"), "--extract", deb, root)
			output(t, testenv.Tool(t, "tar"), "-C", unpacked, "-xzf", one(t, filepath.Join(dist, "fulgur-*-linux-"+arch+".tar.gz")))
			unpacked = one(t, filepath.Join(unpacked, "*"))
			pages, err := filepath.Glob("../docs/man/*.1")
			if err != nil || len(pages) == 0 {
				t.Fatalf("got manual pages %q, %v; want some", pages, err)
			}
			for _, page := range pages {
				name := filepath.Base(page)
				same(t, page, unpacked+"/man/man1/"+name)
				if _, err := os.Stat(root + "/usr/share/man/man1/" + name + ".gz"); err != nil {
					t.Error(err)
				}
			}
			for _, name := range []string{"README.md", "SECURITY.md", "docs/machine.md", "docs/images/page-flame.png"} {
				same(t, filepath.Join("..", name), filepath.Join(unpacked, name))
				same(t, filepath.Join("..", name), root+"/usr/share/doc/fulgur/"+name)
			}
			same(t, "../LICENSE", filepath.Join(unpacked, "LICENSE"))
			same(t, "../CHANGELOG.md", filepath.Join(unpacked, "CHANGELOG.md"))
			for _, name := range []string{"completions/fulgur.bash", "completions/_fulgur", "completions/fulgur.fish", "LICENSE.third-party", "LICENSE.bpf"} {
				if info, err := os.Stat(filepath.Join(unpacked, name)); err != nil || info.Size() == 0 {
					t.Errorf("%s: got %v, %v; want a file that is not empty", name, info, err)
				}
			}
			same(t, filepath.Join(unpacked, "fulgur"), root+"/usr/bin/fulgur")
			same(t, "systemd/fulgur-agent.service", unpacked+"/examples/fulgur-agent.service")
			same(t, "systemd/fulgur-agent.service", root+"/usr/lib/systemd/system/fulgur-agent.service")
			one(t, filepath.Join(dist, "fulgur-*."+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]+".rpm"))
			if arch != runtime.GOARCH {
				return
			}
			out := strings.Fields(output(t, root+"/usr/bin/fulgur", "version"))
			if want := "fulgur-" + strings.TrimPrefix(out[1], "v") + "-linux-" + arch; filepath.Base(unpacked) != want {
				t.Errorf("tarball of version %s: got %s, want %s", out[1], filepath.Base(unpacked), want)
			}
		})
	}
}

// one returns the only path that matches pattern.
func one(t *testing.T, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) != 1 {
		t.Fatalf("%s: got %q, %v; want one path", pattern, paths, err)
	}
	return paths[0]
}

// same compares two files.
func same(t *testing.T, a, b string) {
	t.Helper()
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	if errX != nil || errY != nil {
		t.Error(errX, errY)
	} else if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}

// output runs a program, which must succeed, and returns its output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Each package contains the license of each linked library.
func TestThirdParties(t *testing.T) {
	text, err := thirdParties("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"== Go\n", "== github.com/cilium/ebpf\n", "== github.com/alecthomas/kong\n", "== golang.org/x/sys\n"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("got no license %q", want)
		}
	}
	if bytes.Contains(text, []byte("== github.com/google/go-containerregistry\n")) {
		t.Error("fulgur is linked with a library of its packaging")
	}
	if d := cmp.Diff(1, bytes.Count(text, []byte("== github.com/cilium/ebpf\n"))); d != "" {
		t.Error("number of times each library is named (-want +got):\n" + d)
	}
}

// The unit has no settings that keep fulgur from reading files. It lets fulgur write temporary files, and
// systemd-analyze finds it confined enough.
func TestUnit(t *testing.T) {
	unit, err := os.ReadFile("systemd/fulgur-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(unit)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			settings[name] = value
		}
	}
	for _, name := range []string{"ProtectKernelModules", "ProtectProc", "RestrictSUIDSGID"} {
		if value, ok := settings[name]; ok {
			t.Errorf("got %s=%s, want it not set", name, value)
		}
	}
	if settings["ProtectSystem"] == "strict" && settings["PrivateTmp"] != "yes" {
		t.Error("/var/tmp is read-only")
	}
	output(t, testenv.Tool(t, "systemd-analyze"), "security", "--offline=yes", "--threshold=50", "systemd/fulgur-agent.service")
	if d := cmp.Diff(settings["CapabilityBoundingSet"], settings["AmbientCapabilities"]); d != "" {
		t.Errorf("capabilities (-bounding +ambient):\n%s", d)
	}
}
